"""Tables and figures from the result files of any number of named runs. See docs/hacking.md."""

from cobalt.cli.entry import exit_codes, run

with exit_codes():
    from studies.reports.make_report import ReportConfig, make_report

if __name__ == "__main__":
    run(ReportConfig, make_report)
