// Sends a capsule a message with @a2a-js/sdk 1.x, and prints the reply as it comes: `node a2a_1.mjs URL TEXT`.

import { randomUUID } from 'node:crypto';
import { SendMessageRequest } from '@a2a-js/sdk';
import { ClientFactory } from '@a2a-js/sdk/client';

const [url, text] = process.argv.slice(2);
const client = await new ClientFactory().createFromUrl(url);
const message = { messageId: randomUUID(), role: 'ROLE_USER', parts: [{ text }] };
for await (const { payload } of client.sendMessageStream(SendMessageRequest.fromJSON({ message }))) {
  if (payload.$case !== 'artifactUpdate') continue;
  for (const part of payload.value.artifact.parts) process.stdout.write(part.content.value);
}
