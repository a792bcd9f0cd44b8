"""Checks a document on standard input against a JSON schema, whose file is named; prints what is wrong, a line for each."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from jsonschema import Draft202012Validator, FormatChecker

schema = json.loads(Path(sys.argv[1]).read_text())
Draft202012Validator.check_schema(schema)
for error in Draft202012Validator(schema, format_checker=FormatChecker()).iter_errors(json.load(sys.stdin)):
    print(f"{error.json_path}: {error.message}")
