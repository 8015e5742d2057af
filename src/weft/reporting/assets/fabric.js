// The fabric: nodes and lines where Python put them, lines coloured by use, and chunks that move along them.

const LEVELS = 6;

function levelOf(share) {
  return share > 0 ? 1 + Math.min(Math.floor(share * (LEVELS - 1) * 0.999999), LEVELS - 2) : 0;
}

// The point at a fraction of a straight line (two points) or of a bow (four).
function pointAlong(line, part) {
  const rest = 1 - part;
  if (line.length === 4) return [line[0] * rest + line[2] * part, line[1] * rest + line[3] * part];
  const weights = [rest ** 3, 3 * rest * rest * part, 3 * rest * part * part, part ** 3];
  let x = 0, y = 0;
  weights.forEach((weight, index) => { x += weight * line[2 * index]; y += weight * line[2 * index + 1]; });
  return [x, y];
}

// Part of a line that the nodes at its ends and half of a chunk leave free, so that chunks do not hide numbers.
function marginOf(line, radius) {
  const first = Math.hypot(line[2] - line[0], line[3] - line[1]);
  const length = line.length === 4 ? first : 3 * first; // how fast a bow begins
  return Math.min(0.35, (1.3 * radius) / Math.max(length, 1));
}

// Chunks that are under way at a moment, with their places.
function chunksAt(motion, lines, moment, radius) {
  const found = [];
  for (let index = 0; index < motion.start.length && motion.start[index] <= moment; index++) {
    const took = motion.took[index], since = moment - motion.start[index];
    if (since < took || (took === 0 && since === 0)) {
      const line = lines[motion.line[index]], margin = marginOf(line, radius);
      const place = pointAlong(line, margin + (1 - 2 * margin) * (took ? since / took : 0));
      found.push({ x: place[0], y: place[1], chunk: motion.chunk[index], step: motion.step[index] });
    }
  }
  return found;
}

// The moment itself, or of a long run the nearest one that the page has crossings of.
function nearest(motion, moment) {
  if (!motion.moments) return Math.max(0, Math.min(moment, motion.end));
  return motion.moments.reduce((best, one) => (Math.abs(one - moment) < Math.abs(best - moment) ? one : best));
}

function formatMoment(motion, moment) {
  return motion.unit === "ps" ? formatTime(moment / 1e12) : "step " + significant(moment / 1000, 4);
}

function showFabric(section) {
  const canvas = element("canvas", { class: "fabric", role: "img", "aria-label": section.summary });
  const state = { run: 0, moment: 0, playing: false, chunks: [] };
  const pointed = element("p", { class: "note pointed", "aria-live": "off" },
    "Point at a link to see its name, speed and use.");
  const draw = () => drawFabric(canvas, section, state);
  const parts = [element("p", {}, section.summary)];
  if (section.runs.length > 1) parts.push(runChoice(section, state, () => parts.controls.change()));
  parts.push(canvas, pointed, ...legend(section));
  parts.controls = motionControls(section, state, draw);
  parts.push(parts.controls.holder);
  canvas.addEventListener("pointermove", (event) => {
    pointed.textContent = describeAt(canvas, section, state, event) || "\u00a0";
  });
  redrawing(canvas, draw);
  return parts;
}

function runChoice(section, state, change) {
  const options = section.runs.map((run, index) => element("option", { value: index }, run.label));
  const select = element("select", {}, options);
  select.addEventListener("change", () => { state.run = Number(select.value); change(); });
  return element("p", {}, element("label", {}, "Shown: ", select));
}

// What colours mean: of nodes always, of lines their use in a run, or their speed where there is no run.
function legend(section) {
  const kinds = section.kinds.map(([kind, name]) =>
    element("li", {}, element("span", { class: "swatch node " + (KINDS[kind] || "switch") }), name));
  const lines = section.runs.length
    ? Array.from({ length: LEVELS }, (_, level) =>
      sample("level" + level, level === 0 ? "idle" : "up to " + 100 * level / (LEVELS - 1) + " %"))
    : section.speeds.map(([look, text]) => (look === null ? element("li", {}, text) : sample("speed" + look, text)));
  return [element("p", { class: "note" }, "Nodes:"), element("ul", { class: "legend" }, kinds),
    element("p", { class: "note" }, section.runs.length ? "Share of the time that a link is busy:" : "Speeds of links, in each direction:"),
    element("ul", { class: "legend" }, lines)];
}

function sample(look, text) {
  return element("li", {}, element("span", { class: "swatch " + look }), text);
}

// Slider, buttons and the line that says what is to be seen.
function motionControls(section, state, draw) {
  const holder = element("div", { class: "controls" });
  const slider = element("input", { type: "range", min: 0, max: 1000, step: 1, value: 0,
    "aria-label": "moment of the run" });
  const play = element("button", { type: "button" }, "Play");
  const back = element("button", { type: "button" }, "Step back");
  const next = element("button", { type: "button" }, "Next step");
  const said = element("output", { "aria-live": "polite" });
  const note = element("p", { class: "note" });
  const motion = () => section.runs[state.run] && section.runs[state.run].motion;
  const refresh = () => {
    const now = motion();
    state.chunks = now ? chunksAt(now, section.lines, state.moment, section.radius) : [];
    if (now) {
      slider.value = String(Math.round((1000 * state.moment) / now.end));
      const steps = [...new Set(state.chunks.map((chunk) => chunk.step))].sort((a, b) => a - b);
      const which = steps.length ? "; step " + (steps.length > 1 ? steps[0] + " to " + steps[steps.length - 1] : steps[0]) : "";
      said.textContent = formatMoment(now, state.moment) + " of " + formatMoment(now, now.end) + ": " +
        state.chunks.length + " chunks under way" + which;
      slider.setAttribute("aria-valuetext", said.textContent);
    }
    draw();
  };
  const move = (moment) => { state.moment = nearest(motion(), moment); refresh(); };
  slider.addEventListener("input", () => { if (!motion()) return; stop(); move((Number(slider.value) * motion().end) / 1000); });
  back.addEventListener("click", () => {
    stop();
    const starts = motion().moments || motion().step_starts;
    move([...starts].reverse().find((start) => start < state.moment) || 0);
  });
  next.addEventListener("click", () => {
    stop();
    const starts = motion().moments || motion().step_starts;
    const start = starts.find((one) => one > state.moment);
    move(start === undefined ? motion().end : start);
  });
  const stop = () => { state.playing = false; play.textContent = "Play"; };
  // Twelve seconds from the beginning to the end, whatever a frame takes.
  const tick = (last) => (time) => {
    if (!state.playing) return;
    state.clock += (motion().end * Math.min(time - last, 100)) / 12000;
    move(state.clock);
    if (state.clock >= motion().end) stop();
    else requestAnimationFrame(tick(time));
  };
  play.addEventListener("click", () => {
    if (state.playing) return stop();
    state.clock = state.moment >= nearest(motion(), motion().end) ? 0 : state.moment;
    state.playing = true;
    play.textContent = "Pause";
    requestAnimationFrame((time) => requestAnimationFrame(tick(time)));
  });
  const change = () => {
    stop();
    const now = motion();
    state.moment = now ? nearest(now, 0) : 0;
    holder.hidden = !now;
    note.textContent = now ? now.note : "";
    refresh();
  };
  holder.append(element("div", { class: "buttons" }, play, back, next), slider, said, note);
  change();
  return { holder: holder, change: change };
}

function scaleOf(section, width) {
  const [left, top, right, bottom] = section.bounds;
  const scale = Math.min(width / (right - left), 640 / (bottom - top), 1.6);
  return { scale: scale, x: (width - scale * (right - left)) / 2 - scale * left, y: -scale * top,
    height: scale * (bottom - top) };
}

function drawFabric(canvas, section, state) {
  const place = scaleOf(section, Math.max(canvas.clientWidth, 40));
  canvas.style.height = place.height + "px";
  fitted(canvas, place.height, (context) => {
    context.translate(place.x, place.y);
    context.scale(place.scale, place.scale);
    drawBoxes(context, section, place.scale);
    drawLines(context, section, state, place.scale);
    drawNodes(context, section, place.scale);
    drawChunks(context, section, state, place.scale);
  });
}

function drawBoxes(context, section, scale) {
  for (const [left, top, right, bottom, label, below] of section.boxes) {
    context.beginPath();
    context.roundRect(left, top, right - left, bottom - top, 10);
    context.fillStyle = colour("box");
    context.fill();
    context.strokeStyle = colour("grid");
    context.lineWidth = 1 / scale;
    context.stroke();
    if (scale > 0.45) {
      context.fillStyle = colour("quiet");
      context.font = Math.min(12 / scale, 15) + "px system-ui, sans-serif";
      context.textAlign = "left";
      context.fillText(label, left + 8, below ? bottom - 6 : top + 15, right - left - 12);
    }
  }
}

function trace(context, line) {
  context.moveTo(line[0], line[1]);
  if (line.length === 4) context.lineTo(line[2], line[3]);
  else context.bezierCurveTo(line[2], line[3], line[4], line[5], line[6], line[7]);
}

function drawLines(context, section, state, scale) {
  const run = section.runs[state.run];
  const looks = new Map();
  section.lines.forEach((line, index) => {
    const look = run ? "level" + levelOf(run.busy[index]) : "speed" + section.line_speeds[index];
    if (!looks.has(look)) looks.set(look, []);
    looks.get(look).push(line);
  });
  const thin = section.lines.length > 1500 ? 0.9 : section.lines.length > 400 ? 1.3 : 2;
  context.lineCap = "round";
  // Busy and fast lines come last, above the others.
  for (const look of [...looks.keys()].sort()) {
    context.beginPath();
    for (const line of looks.get(look)) trace(context, line);
    context.strokeStyle = colour(look);
    context.lineWidth = Math.max(look === "level0" ? 0.7 * thin : thin, 0.7 / scale);
    context.stroke();
  }
}

const KINDS = { rank: "rank", switch: "switch", "switch near": "near", "switch bus": "bus", "switch cpu": "cpu",
  "switch nic": "nic", "switch failed": "failed" };

function drawNodes(context, section, scale) {
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (const [x, y, radius, kind, label] of section.nodes) {
    context.beginPath();
    const named = kind !== "rank" && label.length > 2 && radius * scale > 8;
    const half = named ? Math.max(radius * 0.9, 3.1 * label.length + 3) : radius * 0.92;
    if (kind === "rank") context.arc(x, y, radius, 0, 2 * Math.PI);
    else context.roundRect(x - half, y - radius * 0.72, 2 * half, radius * 1.44, radius * 0.3);
    context.fillStyle = colour(KINDS[kind] || "switch");
    context.fill();
    context.strokeStyle = colour("page");
    context.lineWidth = Math.max(1, 0.1 * radius);
    context.stroke();
    const size = named ? 10 : radius * (label.length < 3 ? 0.85 : label.length < 4 ? 0.7 : 0.62);
    if (label && size * scale >= 5) {
      context.fillStyle = colour(kind === "rank" ? "on-rank" : "on-switch");
      context.font = "600 " + size + "px system-ui, sans-serif";
      context.fillText(label, x, y, 2 * half);
    }
  }
  context.textBaseline = "alphabetic";
}

function drawChunks(context, section, state, scale) {
  const motion = section.runs[state.run] && section.runs[state.run].motion;
  const radius = Math.max(Math.min(0.42 * section.radius, 7), 3.2 / scale);
  for (const { x, y, chunk } of state.chunks) {
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI);
    context.fillStyle = hue(chunk);
    context.fill();
    context.strokeStyle = colour("page");
    context.lineWidth = 0.25 * radius;
    context.stroke();
    const label = String(motion.chunks[chunk]);
    if (radius * scale > 5.5 && label.length < 4) {
      context.fillStyle = colour("on-chunk");
      context.textAlign = "center";
      context.font = "600 " + radius * (label.length < 3 ? 1.05 : 0.75) + "px system-ui, sans-serif";
      context.fillText(label, x, y + 0.36 * radius, 1.8 * radius);
    }
  }
}

// Number of the line nearest to the pointer; -1 where none is near.
function lineAt(canvas, section, event) {
  const place = scaleOf(section, Math.max(canvas.clientWidth, 40));
  const x = (event.offsetX - place.x) / place.scale, y = (event.offsetY - place.y) / place.scale;
  let best = -1, nearest = 8 / place.scale;
  section.lines.forEach((line, index) => {
    for (let part = 0.1; part < 0.95; part += 0.1) {
      const at = pointAlong(line, part);
      const distance = Math.hypot(at[0] - x, at[1] - y);
      if (distance < nearest) { nearest = distance; best = index; }
    }
  });
  return best;
}

// The link nearest to the pointer, in words.
function describeAt(canvas, section, state, event) {
  const best = lineAt(canvas, section, event);
  if (best < 0) return "";
  const run = section.runs[state.run];
  const use = run ? ", busy " + significant(100 * run.busy[best], 3) + " % of the time" : "";
  return section.line_names[best] + use;
}
