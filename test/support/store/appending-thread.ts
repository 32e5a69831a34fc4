/** A thread that writes to a run through a port of its own. */
import { type MessagePort, workerData } from 'node:worker_threads'
import { JournalClient } from '../../../src/store/index.ts'
import { rolloutEntries } from './fixtures.ts'

const { port, from, to } = workerData as { port: MessagePort; from: number; to: number }
await using journal = new JournalClient(port)
for (let task = from; task < to; task += 1) {
  for (const entry of rolloutEntries(task)) journal.append(entry)
  if (task % 10 === 0) await journal.durable()
}
