"""Reports: tables and figures of the paper's kind, from result files of any number of named runs."""
