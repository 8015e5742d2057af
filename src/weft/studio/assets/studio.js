// The studio: keeps one session with the server, shows its cluster, and compares anew after every change.

const target = document.getElementById("report");
const studio = { state: null, running: null, fabric: null };

const said = element("p", { class: "status", role: "status" }, "Loading.");
const problem = element("p", { class: "problem", role: "alert", hidden: true });
const progress = element("progress", { max: 1, value: 0, "aria-label": "algorithms tried" });
const results = element("div", { id: "results" });
let cluster, edge, compared;

function complain(error) {
  if (error.name === "AbortError") return;
  problem.textContent = error.message;
  problem.hidden = false;
}

function sessionPath(rest) {
  return "/api/sessions/" + encodeURIComponent(studio.state.session) + rest;
}

// Asks for something that changes the cluster, shows the cluster that comes back, and compares on it.
async function change(method, path, body) {
  problem.hidden = true;
  try {
    showState(await (await ask(method, path, body)).json());
  } catch (error) {
    return complain(error);
  }
  return startComparison();
}

function showState(state) {
  studio.state = state;
  sessionStorage.setItem(KEPT_SESSION, state.session);
  cluster.show(state);
  edge.show(state);
  studio.fabric = showSection(state.fabric, 0);
  pickFrom(studio.fabric, state.fabric);
  results.replaceChildren(studio.fabric);
}

// A click on a line puts its ends into the form that edits cables.
function pickFrom(holder, section) {
  const canvas = holder.querySelector("canvas.fabric");
  const ends = studio.state.line_ends;
  if (!canvas || !ends || ends.length !== section.lines.length) return;
  canvas.classList.add("pickable");
  canvas.addEventListener("click", (event) => {
    const line = lineAt(canvas, section, event);
    if (line < 0) return;
    edge.pick(ends[line]);
    said.textContent = "The cable between " + ends[line][0] + " and " + ends[line][1] + " is chosen.";
  });
}

async function startComparison() {
  if (studio.running) studio.running.abort();
  const running = studio.running = new AbortController();
  problem.hidden = true;
  compared.running(true);
  progress.removeAttribute("value");
  said.textContent = "Comparing.";
  try {
    await followComparison(sessionPath("/comparisons"), compared.body(), running.signal,
      (event) => { if (studio.running === running) showEvent(event); });
  } catch (error) {
    if (studio.running === running) {
      said.textContent = "Nothing was compared.";
      progress.value = 0;
      complain(error);
    }
  }
  if (studio.running === running) {
    studio.running = null;
    compared.running(false);
  }
}

function showEvent(event) {
  if (event.event === "rows") {
    progress.max = event.of;
    progress.value = event.tried;
    said.textContent = event.tried + " of " + event.of + " algorithms tried.";
    if (!event.result.results.length) return;
    const [first, ...others] = event.sections.map((section, index) => showSection(section, index + 1));
    results.replaceChildren(first, studio.fabric, ...others);
  } else if (event.event === "done") {
    progress.max = progress.value = 1;
    said.textContent = summarise(event.result);
    results.replaceChildren(...showSections(event.document.sections));
    const drawn = event.document.sections.find((section) => section.kind === "fabric");
    if (drawn) pickFrom(results, drawn);
  } else if (event.event === "cancelled") {
    progress.value = 0;
    said.textContent = "Cancelled: " + event.reason + ".";
  } else if (event.event === "error") {
    progress.value = 0;
    said.textContent = "Nothing was compared.";
    complain({ message: event.error + ". " + event.what_to_do });
  }
}

function summarise(result) {
  const best = result.results.find((row) => row.verified && row.seconds);
  if (!best) return "No schedule is correct.";
  const condition = result.bound_condition ? ", which holds where " + result.bound_condition : "";
  return best.label + " is the fastest of " + result.results.length + ": " + formatTime(best.seconds) + ", " +
    significant(100 * best.fraction_of_bound, 3) + " % of the bound" + condition + ".";
}

async function saveCluster() {
  try {
    const data = await (await ask("GET", sessionPath("/cluster.toml"))).blob();
    const link = element("a", { href: URL.createObjectURL(data), download: "cluster.toml" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  } catch (error) {
    complain(error);
  }
}

// The session of this tab, if the server still has it, or a new one.
async function openSession() {
  const kept = sessionStorage.getItem(KEPT_SESSION);
  if (kept) {
    try {
      return await (await ask("GET", "/api/sessions/" + encodeURIComponent(kept))).json();
    } catch (error) {
      if (error.status !== 404) throw error;
    }
  }
  return (await ask("POST", "/api/sessions", {})).json();
}

async function startStudio() {
  const choices = await (await ask("GET", "/api/choices")).json();
  cluster = clusterForm({
    load: (spec) => change("PUT", sessionPath("/cluster"), { topology: spec }),
    upload: (name, text) => change("PUT", sessionPath("/cluster"), { file: { name: name, text: text } }),
    save: saveCluster,
  });
  edge = edgeForm({
    edit: (edit) => change("POST", sessionPath("/edits"), edit),
    undo: () => change("DELETE", sessionPath("/edits/last")),
  });
  compared = compareForm(choices, {
    compare: () => studio.state && startComparison(),
    stop: () => ask("DELETE", sessionPath("/comparisons")).catch(complain),
  });
  const state = await openSession();
  target.replaceChildren(
    element("header", { class: "studio" }, element("h1", {}, "weft studio"),
      element("a", { href: "/api", target: "_blank", rel: "noopener" }, "API")),
    element("div", { class: "panel" }, cluster.form, edge.form, edge.made, compared.form, compared.list),
    element("div", { class: "live" }, said, progress, problem), results,
    element("footer", {}, "weft " + choices.version + ". This page talks to the studio on this machine and to nothing else."));
  showState(state);
  startComparison();
}

startStudio().catch((error) => {
  target.replaceChildren(element("h1", {}, "weft studio"), problem);
  complain(error);
});
