// What can be changed on the page: the cluster, its cables, and what is compared. Every function makes the elements of one
// form and says by a callback what was chosen; the texts of a cluster stay text, because elements are made by element().

function field(label, control) {
  return element("label", { class: "field" }, element("span", {}, label), control);
}

function choice(values, attributes) {
  return element("select", attributes, values.map((value) => element("option", { value: value }, value)));
}

function onSubmit(form, act) {
  form.addEventListener("submit", (event) => { event.preventDefault(); act(); });
  return form;
}

function clusterForm(actions) {
  const spec = element("input", { name: "topology", autocomplete: "off", spellcheck: "false", required: true });
  const file = element("input", { type: "file", name: "file", accept: ".toml,.xml,.txt,.conf,.yaml" });
  file.addEventListener("change", async () => {
    const chosen = file.files[0];
    if (chosen) actions.upload(chosen.name, await chosen.text());
    file.value = "";
  });
  const save = element("button", { type: "button" }, "Save as TOML");
  save.addEventListener("click", actions.save);
  const form = element("form", { class: "row", name: "cluster" }, field("Cluster", spec),
    element("button", {}, "Load"), field("or a topology file", file), save);
  return { form: onSubmit(form, () => actions.load(spec.value)), show: (state) => { spec.value = state.base; } };
}

function edgeForm(actions) {
  const action = element("select", { name: "action" }, [["slow", "slow down"], ["cut", "cut"], ["add", "add"]].map(
    ([value, text]) => element("option", { value: value }, text)));
  const nodes = element("datalist", { id: "nodes" });
  const end = (name) => element("input", { name: name, list: "nodes", autocomplete: "off", required: true, size: 9 });
  const a = end("a"), b = end("b");
  const speed = element("input", { name: "speed", value: "10%", size: 8, autocomplete: "off", required: true });
  const latency = element("input", { name: "latency", value: "1us", size: 6, autocomplete: "off", required: true });
  const speedField = field("to (10%, 5GB/s)", speed), latencyField = field("latency", latency);
  const undo = element("button", { type: "button", name: "undo", disabled: true }, "Undo");
  undo.addEventListener("click", actions.undo);
  const fit = () => {
    speedField.hidden = action.value === "cut";
    speed.disabled = action.value === "cut";
    latencyField.hidden = action.value !== "add";
    latency.disabled = action.value !== "add";
    speedField.firstChild.textContent = action.value === "add" ? "bandwidth" : "to (10%, 5GB/s)";
    if (action.value === "add" && speed.value.endsWith("%")) speed.value = "10GB/s";
  };
  action.addEventListener("change", fit);
  fit();
  const form = element("form", { class: "row", name: "edge" }, field("Cable", action), field("between", a),
    field("and", b), speedField, latencyField, element("button", {}, "Apply"), undo);
  onSubmit(form, () => actions.edit(readEdit(action.value, a.value, b.value, speed.value.trim(), latency.value.trim())));
  const made = element("ol", { class: "edits" });
  return {
    form: form,
    made: made,
    pick: (ends) => { a.value = ends[0]; b.value = ends[1]; },
    show: (state) => {
      undo.disabled = !state.edits.length;
      made.replaceChildren(...state.edits.map((text) => element("li", {}, text)));
      nodes.replaceChildren(...state.node_names.map((name) => element("option", { value: name })));
      if (!nodes.isConnected) form.append(nodes);
    },
  };
}

function readEdit(action, a, b, speed, latency) {
  if (action === "cut") return { action: action, a: a, b: b };
  if (action === "add") return { action: action, a: a, b: b, bandwidth: speed, latency: latency };
  const share = speed.endsWith("%") ? Number(speed.slice(0, -1)) / 100 : null;
  return share ? { action: action, a: a, b: b, factor: share } : { action: action, a: a, b: b, bandwidth: speed };
}

function compareForm(choices, actions) {
  const collective = choice(Object.keys(choices.algorithms), { name: "collective" });
  const size = element("input", { name: "size", value: "64MiB", size: 8, autocomplete: "off", required: true });
  const list = element("div", { class: "algorithms" });
  const summary = element("summary", {}, "Algorithms: all");
  const boxes = () => [...list.querySelectorAll("input")];
  const chosen = () => boxes().filter((box) => box.checked).map((box) => box.value);
  const changed = () => {
    const names = chosen();
    summary.textContent = names.length ? "Algorithms: " + names.join(", ") : "Algorithms: all";
    actions.compare();
  };
  const fill = () => {
    const kept = new Set(chosen());
    list.replaceChildren(...choices.algorithms[collective.value].map((name) => {
      const box = element("input", { type: "checkbox", value: name });
      box.checked = kept.has(name);
      return element("label", {}, box, name);
    }));
  };
  list.addEventListener("change", changed);
  collective.addEventListener("change", () => { fill(); changed(); });
  size.addEventListener("change", actions.compare);
  const stop = element("button", { type: "button", name: "stop", disabled: true }, "Stop");
  stop.addEventListener("click", actions.stop);
  fill();
  const form = element("form", { class: "row", name: "compare" }, field("Collective", collective),
    field("Size", size), element("button", {}, "Compare"), stop);
  return {
    form: onSubmit(form, actions.compare),
    list: element("details", {}, summary,
      element("p", { class: "note" }, "Choose some, or none for all that apply."), list),
    running: (is) => { stop.disabled = !is; },
    body: () => ({ size: size.value.trim(), collective: collective.value, algorithms: chosen() }),
  };
}
