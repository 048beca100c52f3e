// A task's log as a window: any event by its number, few of them in memory.

const PAGE = 100;
const MOST_EVENTS = 2_000;
const MOST_CHARACTERS = 16 * 1024 * 1024;
const AT_ONCE = 2;

/** The events of one task, read by pages when they are looked at, and added when they happen. */
export class EventLog {
  constructor(api, taskId, { owner, onChange, onError, onEvent, signal }) {
    Object.assign(this, { api, taskId, owner, onChange, onError, onEvent, signal });
    this.total = 0;
    this.first = 1; // the part that is looked at
    this.last = 1;
    this.characters = 0;
    this.events = new Map(); // number to event; numbers have no gaps
    this.reading = new Set();
    this.end = undefined; // the newest end of a run
  }

  get(number) {
    return this.events.get(number);
  }

  /** Take an event of a page or of the stream; its data is JSON text. */
  add({ id, event, data }) {
    const number = Number(id);
    this.total = Math.max(this.total, number);
    if (this.events.has(number)) return;
    const made = { number, kind: event, size: data.length, data: JSON.parse(data) };
    this.events.set(number, made);
    this.onEvent(made);
    const ends = event === "task_complete" || event === "task_error";
    if (ends && number > (this.end?.number ?? 0)) this.end = made;
    this.characters += made.size;
    return made;
  }

  /** Keep what is near the part that is looked at, once there is too much. */
  trim() {
    if (this.events.size <= MOST_EVENTS && this.characters <= MOST_CHARACTERS) return;
    const middle = (this.first + this.last) / 2;
    const away = (number) => Math.abs(number - middle);
    const numbers = [...this.events.keys()].sort((one, two) => away(two) - away(one));
    for (const number of numbers) {
      const few = this.events.size <= MOST_EVENTS * 0.75;
      if (few && this.characters <= MOST_CHARACTERS * 0.75) break;
      if (number >= this.first && number <= this.last) break; // what is shown stays
      this.characters -= this.events.get(number).size;
      this.events.delete(number);
    }
  }

  /** Say which events are looked at; those that are missing are read. */
  look(first, last) {
    this.first = Math.max(1, first);
    this.last = Math.min(this.total, last);
    this.trim();
    this.readMissing();
  }

  readMissing() {
    for (let number = this.first; number <= this.last; number++) {
      if (this.reading.size >= AT_ONCE) return;
      const page = Math.floor((number - 1) / PAGE);
      if (this.events.has(number) || this.reading.has(page)) continue;
      this.reading.add(page);
      this.read(page, number);
    }
  }

  async read(page, number) {
    let failed = false;
    try {
      // From the missing one to the end of its page: a page of long events is cut at 1 MiB.
      const limit = (page + 1) * PAGE - number + 1;
      const record = await this.api.task(this.taskId, number - 1, limit, this);
      this.total = Math.max(this.total, record.event_count);
      for (const event of record.events) this.add(event);
      failed = !this.events.has(number); // else it would be asked for again at once
    } catch (error) {
      failed = true;
      if (!this.signal.aborted) this.onError(error);
    }
    this.reading.delete(page);
    if (this.signal.aborted) return;
    if (failed) setTimeout(() => this.signal.aborted || this.readMissing(), 2_000);
    else this.readMissing();
    this.trim();
    this.onChange();
  }
}
