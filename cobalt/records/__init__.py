"""Data formats (JSONL): tests, verdicts, execution results, record files and manifests."""

from cobalt.records.jsonl import (
    RecordFile,
    count_lines,
    dump_line,
    id_key,
    read_jsonl,
    require_fields,
    row_hash,
    write_jsonl,
    write_lines,
)
from cobalt.records.manifest import Manifest
from cobalt.records.results import ExecutionResult, Verdict
from cobalt.records.tests import TestCases, tests_of

__all__ = [
    "ExecutionResult",
    "Manifest",
    "RecordFile",
    "TestCases",
    "Verdict",
    "count_lines",
    "dump_line",
    "id_key",
    "read_jsonl",
    "require_fields",
    "row_hash",
    "tests_of",
    "write_jsonl",
    "write_lines",
]
