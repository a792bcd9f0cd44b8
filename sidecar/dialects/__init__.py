"""Pure reading and writing of one protocol each."""
