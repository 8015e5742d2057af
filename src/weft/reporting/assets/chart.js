// Times against size: uPlot on two logarithmic axes, the bound as a dashed line, and the same numbers as a table.

function showChart(section) {
  const holder = element("div", { class: "chart" });
  const numbers = section.sizes.map((size, index) => [
    formatSize(size), ...section.series.map((line) => formatTime(line.seconds[index])),
  ]);
  const table = makeTable(["size", ...section.series.map((line) => line.label)], numbers, 1, section.title);
  const details = element("details", {}, element("summary", {}, "Numbers of this chart"), table);
  let plot = null;
  const draw = () => {
    if (plot) plot.destroy();
    plot = new uPlot(chartOptions(section, holder.clientWidth), chartData(section), holder);
    holder.chart = plot;
  };
  redrawing(holder, draw);
  return [holder, ...noteOf(section), details];
}

function chartData(section) {
  return [section.sizes, ...section.series.map((line) => line.seconds.map((value) => value || null))];
}

function chartOptions(section, width) {
  const text = colour("text"), grid = { stroke: colour("grid"), width: 1 };
  const narrow = width < 500;
  const axis = (values, size, label) => ({
    stroke: text, grid: grid, ticks: grid, size: size, label: label, labelSize: label ? 22 : 0,
    font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif",
    values: (plot, found) => found.map((value) => (value === null ? null : values(value))),
  });
  const sizes = axis(formatSize, 40, "size of the buffer");
  sizes.splits = () => everySecond(section.sizes, narrow ? 4 : 9);
  // Every size is written, also those that the logarithmic axis would leave out.
  sizes.filter = (plot, splits) => splits;
  const series = section.series.map((line, index) => ({
    label: line.label,
    ...(line.bound ? { stroke: colour("bound"), dash: [6, 5] } : seriesLook(index)),
    // The first line stays to be seen below others that run along it.
    width: line.bound ? 2 : index === 0 ? 3.2 : 1.6,
    points: { show: !line.bound, size: 6 },
    spanGaps: true,
    value: (plot, value) => formatTime(value),
  }));
  return {
    width: Math.max(width, 200),
    height: narrow ? 280 : 360,
    scales: { x: { time: false, distr: 3, log: 2 }, y: { distr: 3, log: 10 } },
    axes: [sizes, axis(formatTime, narrow ? 62 : 70, narrow ? null : "time")],
    series: [{ label: "size", value: (plot, value) => (value === null ? "-" : formatSize(value)) }, ...series],
    cursor: { drag: { x: false, y: false } },
    legend: { markers: { dash: (plot, index) => (plot.series[index].dash ? "dashed" : "solid") } },
  };
}

function everySecond(values, most) {
  const stride = Math.ceil(values.length / most);
  return values.filter((value, index) => index % stride === 0);
}
