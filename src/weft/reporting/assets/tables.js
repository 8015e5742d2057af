// Sections of words, facts, texts, tables and bars.

function noteOf(section) {
  return section.note ? [element("p", { class: "note" }, section.note)] : [];
}

// Text whose names of links, such as s0->3, are not broken in their arrows.
function withLinks(text) {
  return String(text).split(/([^\s,(]+->[^\s,;)]+)/).map((part, index) =>
    (index % 2 && part.length <= 40 ? element("span", { class: "link" }, part) : part));
}

function showWords(section) {
  return section.paragraphs.map((text) => element("p", {}, withLinks(text)));
}

function showFacts(section) {
  const items = section.facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]);
  return [element("dl", {}, items)];
}

function showText(section) {
  return [element("pre", { tabindex: 0, role: "region", "aria-label": section.title }, section.text)];
}

// A path may be broken after its slashes.
function breakable(text) {
  return String(text).split(/(?<=\/)(?=.)/).flatMap((part, index) =>
    (index ? [element("wbr"), ...withLinks(part)] : withLinks(part)));
}

// Short names, such as those of links, stay on one line, and so do numbers with their units.
function makeCell(text, kind, isWord) {
  const whole = String(text).length <= 20;
  return element("td", { class: kind + (isWord && whole ? " whole" : "") }, isWord && !whole ? breakable(text) : text);
}

function makeTable(columns, rows, left, title) {
  const long = (index) => index < left && rows.some((row) => (row[index] || "").length > 60);
  const kind = (index) => (index < left ? "word" : "number") + (long(index) ? " long" : "");
  const head = columns.map((name, index) => element("th", { scope: "col", class: kind(index) }, name));
  const body = rows.map((row) => element("tr", {}, row.map((cell, index) => makeCell(cell, kind(index), index < left))));
  const table = element("table", {}, element("thead", {}, element("tr", {}, head)), element("tbody", {}, body));
  return element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title }, table);
}

function showTable(section) {
  return [makeTable(section.columns, section.rows, section.left, section.title), ...noteOf(section)];
}

function showBars(section) {
  const totals = section.bars.map((bar) => Math.max(0, ...Object.values(bar.seconds).map((s) => s || 0)));
  const most = Math.max(section.bound || 0, ...totals) || 1;
  const parts = [...new Set(section.bars.flatMap((bar) => Object.keys(bar.seconds)))];
  const rows = section.bars.map((bar) => {
    const lines = Object.entries(bar.seconds).map(([part, seconds]) => {
      const fill = drawn("rect", {
        x: 0, y: 0, height: 14, rx: 2, width: Math.max((1000 * (seconds || 0)) / most, 1),
        class: "bar part" + parts.indexOf(part),
      });
      const limit = section.bound
        ? [drawn("line", { x1: (1000 * section.bound) / most, x2: (1000 * section.bound) / most, y1: -4, y2: 18,
            class: "bound-line" })]
        : [];
      const picture = drawn("svg", { viewBox: "0 0 1000 14", preserveAspectRatio: "none", "aria-hidden": "true" },
        fill, limit);
      const value = (parts.length > 1 ? part + " " : "") + formatTime(seconds);
      return element("div", { class: "bar-row" }, picture, element("span", { class: "value" }, value));
    });
    return element("div", { class: "bar-group", role: "listitem" },
      element("span", { class: "bar-label" }, bar.label), element("div", {}, lines));
  });
  const bound = section.bound
    ? [element("p", { class: "note" }, "The line is the bound, " + formatTime(section.bound) + ".")]
    : [];
  return [element("div", { class: "bars", role: "list" }, rows), ...bound, ...noteOf(section)];
}
