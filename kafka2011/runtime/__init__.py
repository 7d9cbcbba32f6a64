"""What every process needs: settings, logs, metrics, signals, clock. Imports no other package here
(process_settings lists every process's settings class, and imports them only on demand).
"""
