"""What every process needs: settings, logs, metrics, signals, clock. Imports no other package here
(process_settings has the settings classes of all by name, and imports them when one is asked for).
"""
