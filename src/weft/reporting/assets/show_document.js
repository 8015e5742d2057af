// Shows the document that stands in the page.

showReport(JSON.parse(document.getElementById("document").textContent), document.getElementById("report"));
