// What the page knows of the run: bounded in the same way as the feed bounds its own history.

export class History {
  constructor() {
    this.replace({});
  }

  // A "history" message is everything: what was there before is forgotten.
  replace(message) {
    this.title = message.title ?? "";
    this.about = message.about ?? {};
    this.ended = message.ended ?? false;
    this.stride = message.stride ?? 1;
    this.rules = message.rules ?? { kept: 600, dense: 100, events: 500 };
    this.observations = message.observations ?? [];
    this.events = message.events ?? [];
  }

  // An observation takes the place of those at the same row or later, and so do its events; see Feed.
  add(observation) {
    const all = this.observations;
    const added = observation.events ?? [];
    const again = new Set(added.map(said));
    const isBack = all.length > 0 && all.at(-1).rows > observation.rows;
    this.events = this.events.filter((one) => !(isBack && one.row > observation.rows) && !again.has(said(one)));
    while (all.length && all.at(-1).rows >= observation.rows) all.pop();
    this.events.push(...added);
    this.events.splice(0, Math.max(0, this.events.length - this.rules.events));
    delete observation.events;
    all.push(observation);
    this.thin();
    this.ended = false;
  }

  thin() {
    const { kept, dense } = this.rules;
    const all = this.observations;
    const leaving = all.at(-dense - 1);
    if (leaving !== undefined && leaving.number % this.stride !== 0) all.splice(-dense - 1, 1);
    if (all.length > kept) {
      this.stride *= 2;
      const older = all.slice(0, -dense).filter((one) => one.number % this.stride === 0);
      this.observations = [...older, ...all.slice(-dense)];
    }
  }

  get last() {
    return this.observations.at(-1);
  }

  get rows() {
    return this.observations.map((one) => one.rows);
  }
}

function said({ row, kind, detail }) {
  return JSON.stringify([row, kind, detail]);
}
