// Who does what when: a row for each track, with a zoom and a position that the keyboard moves as well.

function showTimeline(section) {
  const canvas = element("canvas", { class: "timeline", role: "img", "aria-label": section.title });
  const state = { zoom: 1, at: 0 };
  const slider = (label, change) => {
    const input = element("input", { type: "range", min: 0, max: 1000, step: 1, value: 0, "aria-label": label });
    input.addEventListener("input", () => { change(Number(input.value) / 1000); draw(); });
    return element("label", {}, label + " ", input);
  };
  const draw = () => drawTimeline(canvas, section, state);
  const said = element("output", {}, "Point at a span to see its name.");
  canvas.addEventListener("pointermove", (event) => {
    said.textContent = spanAt(canvas, section, state, event) || "\u00a0";
  });
  redrawing(canvas, draw);
  const controls = element("div", { class: "controls" },
    slider("zoom", (value) => { state.zoom = 200 ** value; }),
    slider("position", (value) => { state.at = value; }), said);
  return [canvas, ...spanLegend(section.names), controls, ...noteOf(section)];
}

// Kinds of spans that have a colour of their own, by the beginnings of their names; others have one by their name.
const SPAN_KINDS = [["forward", "forward"], ["backward", "backward"], ["wait", "level0"]];

// What colours mean, where any has a meaning.
function spanLegend(names) {
  const kinds = SPAN_KINDS.filter(([kind]) => names.some((name) => name.startsWith(kind)));
  if (!kinds.length) return [];
  const rest = names.some((name) => !SPAN_KINDS.some(([kind]) => name.startsWith(kind)));
  return [element("ul", { class: "legend" }, kinds.map(([kind, look]) => sample(look, kind)),
    rest ? [element("li", {}, "other colours: one for each group")] : [])];
}

const ROW = 22;

// Left edge of the drawing, and the moments at its edges.
function spanWindow(section, state, width) {
  const left = Math.min(170, 0.3 * width), shown = section.end_us / state.zoom;
  const begin = state.at * (section.end_us - shown);
  return { left: left, begin: begin, shown: shown || 1, scale: (width - left - 4) / (shown || 1) };
}

function drawTimeline(canvas, section, state) {
  const height = section.tracks.length * ROW + 28;
  canvas.style.height = height + "px";
  fitted(canvas, height, (context, width) => {
    const { left, begin, shown, scale } = spanWindow(section, state, width);
    context.font = "11px system-ui, sans-serif";
    section.tracks.forEach((track, row) => {
      const top = row * ROW;
      context.fillStyle = colour(row % 2 ? "page" : "box");
      context.fillRect(0, top, width, ROW);
      context.fillStyle = colour("text");
      context.textAlign = "left";
      context.fillText(track.process + ": " + track.name, 4, top + 15, left - 10);
      for (const [start, took, name] of track.spans) {
        const x = Math.max(left + (start - begin) * scale, left);
        const end = Math.min(left + (start + took - begin) * scale, width);
        if (end < left || x > width) continue;
        context.fillStyle = spanColour(section.names[name]);
        context.fillRect(x, top + 3, Math.max(end - x, 0.8), ROW - 6);
        if (end - x > 44) {
          context.fillStyle = colour("on-chunk");
          context.fillText(section.names[name], x + 4, top + 15, end - x - 6);
        }
      }
    });
    const bottom = section.tracks.length * ROW;
    context.fillStyle = colour("quiet");
    const marks = width < 500 ? 2 : 5;
    for (let mark = 0; mark <= marks; mark++) {
      const x = left + ((width - left - 4) * mark) / marks;
      context.textAlign = mark === marks ? "right" : mark ? "center" : "left";
      context.fillText(formatTime((begin + (shown * mark) / marks) / 1e6), x, bottom + 18);
    }
  });
}

// Groups differ by their number, and what has none by its name.
function spanColour(name) {
  const kind = SPAN_KINDS.find(([beginning]) => name.startsWith(beginning));
  if (kind) return colour(kind[1]);
  const group = /(\d+)$/.exec(name);
  if (group) return hue(Number(group[1]));
  let sum = 0;
  for (const letter of name) sum = (31 * sum + letter.codePointAt(0)) % 997;
  return hue(sum);
}

function spanAt(canvas, section, state, event) {
  const track = section.tracks[Math.floor(event.offsetY / ROW)];
  if (!track) return "";
  const { left, begin, scale } = spanWindow(section, state, canvas.clientWidth);
  const moment = begin + (event.offsetX - left) / scale;
  const span = track.spans.find(([start, took]) => start <= moment && moment <= start + took + 1 / scale);
  if (!span) return "";
  return section.names[span[2]] + ": from " + formatTime(span[0] / 1e6) + ", takes " + formatTime(span[1] / 1e6);
}
