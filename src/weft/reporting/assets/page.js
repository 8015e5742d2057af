// The page: reads the document that stands in it, and draws its sections one after the other.

const KINDS_OF_SECTIONS = {
  words: showWords, facts: showFacts, text: showText, table: showTable, bars: showBars, chart: showChart,
  fabric: showFabric, timeline: showTimeline,
};

function showReport(report, target) {
  const links = report.sections.map((section, index) =>
    element("li", {}, element("a", { href: "#section-" + index }, section.title)));
  const head = element("header", {}, element("h1", {}, report.title));
  const contents = report.sections.length > 2
    ? [element("nav", { "aria-label": "Sections" }, element("ul", {}, links))]
    : [];
  const sections = report.sections.map((section, index) =>
    element("section", { id: "section-" + index, class: section.kind },
      element("h2", {}, section.title), KINDS_OF_SECTIONS[section.kind](section)));
  target.replaceChildren(head, ...contents, ...sections,
    element("footer", {}, "Made by " + (report.made_by || "weft") + ". This page needs no network."));
}

showReport(JSON.parse(document.getElementById("document").textContent), document.getElementById("report"));
