"""Data formats (JSONL): results, record files and manifests. Tests and verdicts are those of ``cobalt.sandbox``."""

from cobalt.records.jsonl import (
    RecordFile,
    count_lines,
    dump_line,
    id_key,
    read_jsonl,
    row_hash,
    write_jsonl,
    write_lines,
)
from cobalt.records.manifest import Manifest
from cobalt.records.results import ResultRecord
from cobalt.sandbox import TestCases, Verdict
from cobalt.sandbox.checkers import tests_of

__all__ = [
    "Manifest",
    "RecordFile",
    "ResultRecord",
    "TestCases",
    "Verdict",
    "count_lines",
    "dump_line",
    "id_key",
    "read_jsonl",
    "row_hash",
    "tests_of",
    "write_jsonl",
    "write_lines",
]
