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

class ProblemAnswer extends Error {
  constructor(status, problem) {
    super(problem.error + ". " + problem.what_to_do);
    this.status = status;
  }
}

async function ask(method, path, body, signal) {
  const headers = { Authorization: "Bearer " + TOKEN };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const text = body === undefined ? undefined : JSON.stringify(body);
  const answer = await fetch(path, { method: method, headers: headers, body: text, signal: signal, cache: "no-store" });
  if (!answer.ok) throw new ProblemAnswer(answer.status, await answer.json());
  return answer;
}

// Calls `tell` with each event of a comparison, until the last one.
async function followComparison(path, body, signal, tell) {
  const answer = await ask("POST", path, body, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) tell(JSON.parse(line));
  }
}
