"""Reports: plans, results and traces as one page of HTML that needs no network and no server."""

from weft.reporting.report_document import make_document, report
from weft.reporting.report_page import make_page

__all__ = ["make_document", "make_page", "report"]
