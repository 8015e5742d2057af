// The page: draws the sections of a document one after the other.

const KINDS_OF_SECTIONS = {
  words: showWords, facts: showFacts, text: showText, table: showTable, bars: showBars, chart: showChart,
  fabric: showFabric, timeline: showTimeline,
};

// Links to the sections, if they are many, and the sections.
function showSections(sections) {
  const links = sections.map((section, index) =>
    element("li", {}, element("a", { href: "#section-" + index }, section.title)));
  const contents = sections.length > 2
    ? [element("nav", { "aria-label": "Sections" }, element("ul", {}, links))]
    : [];
  return [...contents, ...sections.map(showSection)];
}

function showSection(section, index) {
  return element("section", { id: "section-" + index, class: section.kind },
    element("h2", {}, section.title), KINDS_OF_SECTIONS[section.kind](section));
}

function showReport(report, target) {
  const head = element("header", {}, element("h1", {}, report.title));
  target.replaceChildren(head, ...showSections(report.sections),
    element("footer", {}, "Made by " + (report.made_by || "weft") + ". This page needs no network."));
}
