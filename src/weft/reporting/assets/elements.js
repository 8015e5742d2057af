// Small helpers: elements whose texts are always text, and numbers for people.

const SVG = "http://www.w3.org/2000/svg";

// Makes an element. Children are elements or texts; a text never becomes markup.
function element(name, attributes, ...children) {
  const made = document.createElement(name);
  fill(made, attributes, children);
  return made;
}

function drawn(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  fill(made, attributes, children);
  return made;
}

function fill(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) {
      made.setAttribute(key, value === true ? "" : String(value));
    }
  }
  for (const child of children.flat()) {
    made.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

function significant(value, digits) {
  return String(Number(value.toPrecision(digits)));
}

function formatTime(seconds) {
  if (seconds === null || seconds === undefined) return "-";
  for (const [unit, scale] of [["s", 1], ["ms", 1e-3], ["us", 1e-6], ["ns", 1e-9]]) {
    if (seconds >= scale) return significant(seconds / scale, 4) + " " + unit;
  }
  return seconds ? significant(seconds / 1e-12, 4) + " ps" : "0 s";
}

function formatSize(bytes) {
  for (const [unit, scale] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (bytes >= scale) return significant(bytes / scale, 4) + " " + unit;
  }
  return bytes + " B";
}

// The colour that the style sheet gives to a name, for the current scheme.
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
}

// Colours of series, spans and chunks: neighbours in number are far apart in hue.
function hue(number, alpha) {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const light = dark ? 64 : 42;
  return "hsl(" + ((number * 137.508 + 210) % 360).toFixed(0) + " 68% " + light + "% / " + (alpha || 1) + ")";
}

// Looks of series keep away from the red of the bound, and from each other: neighbours differ in hue, and where
// the hues begin again, in lightness and in dashes.
const HUES = [200, 300, 120, 45, 245, 165, 275, 80];

function seriesLook(number) {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const round = Math.floor(number / HUES.length) % 3;
  const light = (dark ? [64, 78, 52] : [40, 26, 54])[round];
  return { stroke: "hsl(" + HUES[number % HUES.length] + " 68% " + light + "%)", dash: [undefined, [2, 3], [9, 3, 2, 3]][round] };
}

// A canvas that keeps the sharpness of the screen; `paint` gets its context and size in CSS pixels.
function fitted(canvas, height, paint) {
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  const width = Math.max(canvas.clientWidth, 40);
  const wide = Math.round(width * ratio), tall = Math.round(height * ratio);
  if (canvas.width !== wide || canvas.height !== tall) {
    canvas.width = wide;
    canvas.height = tall;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  paint(context, width, height);
}

// Calls again when the width or the colour scheme changes.
function redrawing(target, draw) {
  let last = 0;
  new ResizeObserver(() => {
    if (target.clientWidth !== last) {
      last = target.clientWidth;
      requestAnimationFrame(draw);
    }
  }).observe(target);
  target.dataset.redrawn = "";
  target.redraw = draw;
}

// One listener for all, so that drawings that were replaced are not kept by one of their own.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const target of document.querySelectorAll("[data-redrawn]")) target.redraw();
});
