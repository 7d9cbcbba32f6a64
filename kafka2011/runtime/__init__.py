"""What every process needs: settings, logs, metrics, signals, clock. Imports no other package
here."""
