"""The one listener for the registry as a whole."""
