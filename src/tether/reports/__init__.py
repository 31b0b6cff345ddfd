"""Reports: one HTML file each, readable offline, by day and night, on paper; no script, everything escaped."""

from tether.reports.demo import DemoArm, write_demo_picture, write_demo_report
from tether.reports.diagnosis import write_report
from tether.reports.run import write_run_report

__all__ = ["DemoArm", "write_demo_picture", "write_demo_report", "write_report", "write_run_report"]
