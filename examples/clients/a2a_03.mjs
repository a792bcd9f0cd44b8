// Sends a capsule a message with @a2a-js/sdk 0.3.x, and prints the reply as it comes: `node a2a_03.mjs URL TEXT`.

import { randomUUID } from 'node:crypto';
import { ClientFactory } from '@a2a-js/sdk/client';

const [url, text] = process.argv.slice(2);
const client = await new ClientFactory().createFromUrl(url);
const message = { kind: 'message', messageId: randomUUID(), role: 'user', parts: [{ kind: 'text', text }] };
for await (const event of client.sendMessageStream({ message })) {
  if (event.kind !== 'artifact-update') continue;
  for (const part of event.artifact.parts) process.stdout.write(part.text);
}
