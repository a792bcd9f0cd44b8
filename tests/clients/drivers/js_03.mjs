// Drives a capsule with the official A2A client for JavaScript, 0.3.x: what comes of it goes to stdout as one JSON object.
//
//     js_03.mjs all URL DIRECTORY     every scenario, side by side; gates of tasks are files in the directory
//     js_03.mjs watch URL TASK        a line of JSON for each event of a task, until its stream ends
//
// Runs beside its packages (tests/support/agents.py puts it there), against the capsule `obedient`.

import { randomUUID } from 'node:crypto';
import { existsSync, writeFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { ClientFactory } from '@a2a-js/sdk/client';

const said = (text, taskId, contextId, configuration) => ({
  message: { kind: 'message', messageId: randomUUID(), role: 'user', parts: [{ kind: 'text', text }], taskId, contextId },
  configuration,
});

const taskIn = (events) => events[0].id;

async function every(url, directory) {
  const client = await new ClientFactory().createFromUrl(url);
  const send = (text, task, context) => client.sendMessage(said(text, task, context));
  const collect = async (stream, until) => {
    const events = [];
    for await (const event of stream) {
      events.push(event);
      if (until && JSON.stringify(event).includes(until)) break;
    }
    return events;
  };
  const stream = (text, until) => collect(client.sendMessageStream(said(text)), until);
  const over = async (id) => {
    for (;;) {
      const task = await client.getTask({ id });
      if (!['submitted', 'working'].includes(task.status.state)) return task;
      await pause(10);
    }
  };

  const scenarios = [
    async () => {
      const whole = await send('count 3');
      return {
        send: whole,
        get: await client.getTask({ id: whole.id }),
        'get without history': await client.getTask({ id: whole.id, historyLength: 0 }),
        reply: await send('message'),
        failed: await send('whatever'),
      };
    },
    async () => {
      const task = await client.sendMessage(said('count 3', undefined, undefined, { blocking: false }));
      return { 'at once': await over(task.id) };
    },
    async () => ({ stream: await stream('count 3'), artifacts: await stream('make') }),
    async () => {
      const events = await stream('ask');
      return { asked: events, answered: await send('Ada', taskIn(events)) };
    },
    async () => {
      const events = await stream(`hold ${directory}/never`, 'begun');
      return { cancel: await client.cancelTask({ id: taskIn(events) }) };
    },
    async () => {
      const gate = `${directory}/again`;
      const events = await stream(`hold ${gate}`, 'begun');
      const again = client.resubscribeTask({ id: taskIn(events) });
      const first = (await again.next()).value;
      writeFileSync(gate, '');
      const rest = await collect(again);
      return { left: events, again: [first, ...rest], got: await client.getTask({ id: taskIn(events) }) };
    },
    async () => {
      const gate = `${directory}/given-up`;
      const giveUp = new AbortController();
      const call = client.sendMessage(said(`hold ${gate}`), { signal: giveUp.signal }).catch(() => undefined);
      while (!existsSync(`${gate}.begun`)) await pause(10);
      giveUp.abort();
      await call;
      writeFileSync(gate, '');
      return {};
    },
    async () => {
      const [events, answer] = await Promise.all([stream('silent 7'), send('silent 7')]);
      return { 'silent stream': events, 'silent send': answer };
    },
    async () => {
      const context = randomUUID();
      const ended = (await send('count 1', undefined, context)).id;
      const tries = {
        get: () => client.getTask({ id: 'nowhere' }),
        cancel: () => client.cancelTask({ id: ended }),
        subscribe: () => collect(client.resubscribeTask({ id: ended })),
        send: () => send('more', ended),
        context: () => send('more', ended, 'of-somebody-else'),
        push: () => client.getTaskPushNotificationConfig({ id: ended }),
      };
      const errors = {};
      for (const [name, attempt] of Object.entries(tries)) {
        try {
          await attempt();
        } catch (error) {
          // the client itself refuses what the card says is not there
          errors[name] = (error.cause ?? error).errorResponse?.error.code ?? error.constructor.name;
        }
      }
      return { errors };
    },
  ];
  const parts = await Promise.all(scenarios.map((scenario) => scenario()));
  console.log(JSON.stringify(Object.assign({ card: await client.getAgentCard() }, ...parts)));
}

async function watch(url, task) {
  const client = await new ClientFactory().createFromUrl(url);
  for await (const event of client.resubscribeTask({ id: task })) console.log(JSON.stringify(event));
}

const [what, ...given] = process.argv.slice(2);
await { all: every, watch }[what](...given);
