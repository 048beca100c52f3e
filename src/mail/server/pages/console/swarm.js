// The swarm: its agents as a live graph, how it is, what you store in it, and the swarms it knows.

import { useEffect, useState } from "./hooks.mjs";
import { Graph, inWords, parts } from "./graph.js";
import { age, amount, duration, html, Problem, Say, size, State, useKeys, useRepeated } from "./parts.js";

const EVERY = 2_000;
const SLOW = 5; // the facts below the graph change seldom

const of = (value, most, show) => (most === null ? show(value) : `${show(value)} of ${show(most)}`);

function useFacts(api) {
  const [facts, setFacts] = useState(null);
  const [error, setError] = useState(null);
  const [count, setCount] = useState(0);
  const read = async () => {
    try {
      const slow = !facts || count % SLOW === 0;
      const [graph, root, status] = await Promise.all([
        api.graph(), slow ? api.root() : facts.root, slow ? api.status() : facts.status,
      ]);
      setFacts({ graph, root, status });
      setError(null);
    } catch (refused) {
      setError(refused);
    }
    setCount(count + 1);
  };
  useEffect(() => void read(), [api]);
  useRepeated(read, EVERY);
  return [facts, error];
}

export function Swarm({ api }) {
  const [facts, error] = useFacts(api);
  const [chosen, setChosen] = useState("");
  useKeys({ Escape: () => setChosen("") });
  if (!facts) {
    return html`<main class="page swarm">
      <h1>Swarm</h1>
      ${error ? html`<${Problem} error=${error} />` : html`<p class="empty">Loading …</p>`}
    </main>`;
  }
  const { graph, root, status } = facts;
  const { swarm } = root;
  const { storage } = status;
  const busy = graph.agents.filter((agent) => agent.turns).length;
  return html`
    <main class="page wide swarm">
      <div class="title"><h1><${Say} text=${swarm.name} /></h1><${State} status=${root.status} /></div>
      <${Problem} error=${error} />
      ${swarm.description && html`<p><${Say} text=${swarm.description} most=${2000} /></p>`}
      <p class="hint" role="status">
        ${amount(graph.agent_count)} agent${graph.agent_count === 1 ? "" : "s"}, ${busy || "none"} in a turn${" "}
        ${graph.scope === "own" ? "for you" : "for all callers"}.
        ${graph.agent_count > graph.agents.length && ` The first ${graph.agents.length} are shown.`}
      </p>
      <${Graph} graph=${graph} chosen=${chosen} onChoose=${(key) => setChosen(key === chosen ? "" : key)} />
      <${Chosen} graph=${graph} chosen=${chosen} />
      <div class="columns">
        <section>
          <h2>Server</h2>
          <dl class="facts-list">
            <dt>Entrypoint</dt><dd><${Say} text=${swarm.entrypoint} /></dd>
            <dt>Version</dt><dd><${Say} text=${swarm.version} /></dd>
            ${swarm.keywords.length > 0 && html`<dt>Keywords</dt><dd><${Say} text=${swarm.keywords.join(", ")} /></dd>`}
            <dt>Server</dt><dd>${root.version}, MAIL ${root.protocol_version}, up for ${duration(root.uptime * 1000)}</dd>
            <dt>Callers at work</dt><dd>${amount(status.active_users)}</dd>
          </dl>
        </section>
        <section>
          <h2>Yours</h2>
          <dl class="facts-list">
            <dt>Tasks</dt><dd>${amount(storage.tasks)}</dd>
            <dt>Open tasks</dt><dd>${amount(storage.open_tasks)}</dd>
            <dt>Stored</dt><dd>${of(storage.bytes, storage.max_bytes, size)}</dd>
            <dt>New messages</dt><dd>${status.user_mail_ready ? "are processed now" : "are not processed now"}</dd>
          </dl>
        </section>
      </div>
      ${graph.swarms.length > 0 &&
      html`<h2>Other swarms</h2>
        <table>
          <thead><tr><th>Swarm</th><th>Health</th><th>Latency</th><th>Last seen</th></tr></thead>
          <tbody>${graph.swarms.map((one) => html`<tr key=${one.swarm_name}>
            <td><${Say} text=${one.swarm_name} most=${120} /></td>
            <td>${one.is_active ? "answers" : "does not answer"}</td>
            <td>${typeof one.latency === "number" ? duration(one.latency * 1000) : ""}</td>
            <td>${one.last_seen ? age(one.last_seen) : "never"}</td>
          </tr>`)}</tbody>
        </table>`}
    </main>
  `;
}

/** What is known of the agent that one has chosen, also for those who do not see colours. */
function Chosen({ graph, chosen }) {
  const { nodes, lines } = parts(graph);
  const node = nodes.find(({ key }) => key === chosen);
  if (!node) return html`<p class="hint">Choose an agent to see whom it writes to.</p>`;
  const nameOf = (key) => key.slice(key.indexOf(" ") + 1);
  const out = lines.filter(({ from }) => from === chosen).map(({ to }) => nameOf(to));
  const into = lines.filter(({ to }) => to === chosen).map(({ from }) => nameOf(from));
  const queues = Object.entries(node.agent?.queues ?? {});
  return html`
    <section class="chosen" aria-live="polite">
      <h2><${Say} text=${inWords(node)} /></h2>
      <dl class="facts-list">
        ${out.length > 0 && html`<dt class="out">Writes to</dt><dd><${Say} text=${out.join(", ")} most=${4000} /></dd>`}
        ${into.length > 0 && html`<dt class="in">Gets mail from</dt><dd><${Say} text=${into.join(", ")} most=${4000} /></dd>`}
        ${node.agent && html`<dt>May</dt><dd>${[
          node.agent.enable_entrypoint && "take mail of users",
          node.agent.can_complete_tasks && "complete tasks",
          node.agent.enable_interswarm && "write to other swarms",
        ].filter(Boolean).join(", ") || "write to the agents above"}</dd>`}
        ${queues.length > 0 && html`<dt>Waiting mail</dt><dd>${queues
          .map(([tier, count]) => `tier ${tier}: ${amount(count)}`).join(", ")}</dd>`}
      </dl>
    </section>
  `;
}
