// Requests to the studio. The token came behind # in the address, which no request carries; it is taken out of the
// address and goes into a header. Comparisons are lines of JSON over fetch rather than server-sent events, because an
// EventSource cannot send a header, and the token would have to stand in an address.

const KEPT_TOKEN = "weft-studio-token", KEPT_SESSION = "weft-studio-session";

function takeToken() {
  const given = location.hash.slice(1);
  if (given && !given.startsWith("section-")) {
    sessionStorage.setItem(KEPT_TOKEN, given);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem(KEPT_TOKEN) || "";
}

const TOKEN = takeToken();

// What helps on this page, where that is something else than what helps a program.
const ADVICE = {
  401: "This page has no token that the studio knows. Open the address that weft studio printed, with all that stands behind #.",
  404: "This session has ended: sessions that nobody uses are dropped after 30 minutes. Reload the page to begin another one.",
};

class ProblemAnswer extends Error {
  constructor(status, problem) {
    super(ADVICE[status] || problem.error + ". " + problem.what_to_do);
    this.status = status;
  }
}

class SilentStudio extends Error {
  constructor() {
    super("The studio does not answer any more. If it has ended, start weft studio again and open the address that it prints.");
  }
}

// Waits for something of the network; what fails there fails because nobody is at the other end.
async function reached(promise) {
  try {
    return await promise;
  } catch (error) {
    throw error.name === "AbortError" ? error : new SilentStudio();
  }
}

async function ask(method, path, body, signal) {
  const headers = { Authorization: "Bearer " + TOKEN };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const text = body === undefined ? undefined : JSON.stringify(body);
  const answer = await reached(
    fetch(path, { method: method, headers: headers, body: text, signal: signal, cache: "no-store" }));
  if (!answer.ok) throw new ProblemAnswer(answer.status, await answer.json());
  return answer;
}

const LAST_EVENTS = ["done", "cancelled", "error"];

// Calls `tell` with each event of a comparison, until the last one.
async function followComparison(path, body, signal, tell) {
  const answer = await ask("POST", path, body, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", last = null;
  for (;;) {
    const { done, value } = await reached(reader.read());
    if (done && LAST_EVENTS.includes(last)) return;
    if (done) throw new SilentStudio();
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const event = JSON.parse(line);
      last = event.event;
      tell(event);
    }
  }
}
