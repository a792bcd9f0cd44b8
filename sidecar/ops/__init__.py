"""What an operator needs: log lines, metrics, notices to the service manager, limits of the process."""
