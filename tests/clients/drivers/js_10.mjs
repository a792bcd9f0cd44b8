// Drives a capsule with the official A2A client for JavaScript, 1.x: what comes of it goes to stdout as one JSON object.
//
//     js_10.mjs all URL DIRECTORY     every scenario, side by side; gates of tasks are files in the directory
//     js_10.mjs watch URL TASK        a line of JSON for each event of a task, until its stream ends
//
// Runs beside its packages (tests/support/agents.py puts it there), against the capsule `obedient`.

import { randomUUID } from 'node:crypto';
import { existsSync, writeFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import {
  CancelTaskRequest, GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTasksRequest, Message, SendMessageRequest,
  StreamResponse, SubscribeToTaskRequest, Task,
} from '@a2a-js/sdk';
import { ClientFactory } from '@a2a-js/sdk/client';

const said = (text, task, context, configuration) => SendMessageRequest.fromJSON({
  message: {
    messageId: randomUUID(), role: 'ROLE_USER', parts: [{ text }], taskId: task ?? '', contextId: context ?? '',
  },
  configuration,
});

// A send's result is a task or a message, with nothing that says which; a stream's event is wrapped.
const answerOf = (result) => 'status' in result ? { task: Task.toJSON(result) } : { message: Message.toJSON(result) };
const taskIn = (events) => events[0].task.id;

async function every(url, directory) {
  const client = await new ClientFactory().createFromUrl(url);
  const send = async (text, task, context) => answerOf(await client.sendMessage(said(text, task, context)));
  const get = async (id, historyLength) => Task.toJSON(await client.getTask(GetTaskRequest.fromJSON({ id, historyLength })));
  const collect = async (stream, until) => {
    const events = [];
    for await (const event of stream) {
      events.push(StreamResponse.toJSON(event));
      if (until && JSON.stringify(events.at(-1)).includes(until)) break;
    }
    return events;
  };
  const stream = (text, until) => collect(client.sendMessageStream(said(text)), until);
  const over = async (id) => {
    for (;;) {
      const task = await get(id);
      if (!['TASK_STATE_SUBMITTED', 'TASK_STATE_WORKING'].includes(task.status.state)) return task;
      await pause(10);
    }
  };

  const scenarios = [
    async () => {
      const whole = await send('count 3');
      return {
        send: whole,
        get: await get(whole.task.id),
        'get without history': await get(whole.task.id, 0),
        reply: await send('message'),
        failed: await send('whatever'),
      };
    },
    async () => {
      const task = await client.sendMessage(said('count 3', '', '', { returnImmediately: true }));
      return { 'at once': await over(task.id) };
    },
    async () => ({ stream: await stream('count 3'), artifacts: await stream('make') }),
    async () => {
      const events = [];
      let answered;
      for await (const event of client.sendMessageStream(said('ask'))) {
        events.push(StreamResponse.toJSON(event));
        if (JSON.stringify(events.at(-1)).includes('INPUT_REQUIRED')) answered = await send('Ada', taskIn(events));
      }
      return { asked: events, answered };
    },
    async () => {
      const events = await stream(`hold ${directory}/never`, 'begun');
      const task = await client.cancelTask(CancelTaskRequest.fromJSON({ id: taskIn(events) }));
      return { cancel: Task.toJSON(task) };
    },
    async () => {
      const gate = `${directory}/again`;
      const events = await stream(`hold ${gate}`, 'begun');
      const again = client.resubscribeTask(SubscribeToTaskRequest.fromJSON({ id: taskIn(events) }));
      const first = StreamResponse.toJSON((await again.next()).value);
      writeFileSync(gate, '');
      const rest = await collect(again);
      return { left: events, again: [first, ...rest], got: await get(taskIn(events)) };
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
      const ended = (await send('count 1', '', context)).task.id;
      const push = GetTaskPushNotificationConfigRequest.fromJSON({ taskId: ended, id: 'p' });
      const tries = {
        get: () => get('nowhere'),
        cancel: () => client.cancelTask(CancelTaskRequest.fromJSON({ id: ended })),
        subscribe: () => collect(client.resubscribeTask(SubscribeToTaskRequest.fromJSON({ id: ended }))),
        send: () => send('more', ended),
        context: () => send('more', ended, 'of-somebody-else'),
        push: () => client.getTaskPushNotificationConfig(push),
      };
      const errors = {};
      for (const [name, attempt] of Object.entries(tries)) {
        try { await attempt(); } catch (error) { errors[name] = error.name; }
      }
      const listed = await client.listTasks(ListTasksRequest.fromJSON({ contextId: context, pageSize: 1 }));
      return { errors, listed: listed.tasks.map((task) => task.id === ended) };
    },
  ];
  const parts = await Promise.all(scenarios.map((scenario) => scenario()));
  console.log(JSON.stringify(Object.assign({ card: await client.getAgentCard() }, ...parts)));
}

async function watch(url, task) {
  const client = await new ClientFactory().createFromUrl(url);
  for await (const event of client.resubscribeTask(SubscribeToTaskRequest.fromJSON({ id: task }))) {
    console.log(JSON.stringify(StreamResponse.toJSON(event)));
  }
}

const [what, ...given] = process.argv.slice(2);
await { all: every, watch }[what](...given);
