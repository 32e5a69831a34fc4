import { once } from 'node:events'
import { MessageChannel, type MessagePort } from 'node:worker_threads'
import { expect, test } from 'vitest'
import { MillraceError } from '../../errors/index.ts'
import { JournalClient, journalLimits } from './journal-client.ts'
import type { JournalEntry } from './journal.ts'
import { nodeEntry } from '../../../test/support/store/fixtures.ts'

const entry = (seq: number): JournalEntry => nodeEntry({ rollout: '0-0', seq })

/** A client, and the writer's end of its port in the hands of the test. */
function connected() {
  const { port1, port2 } = new MessageChannel()
  const client = new JournalClient(port1)
  return {
    client,
    port: port2,
    batch: () => nextBatch(port2),
    [Symbol.asyncDispose]: async () => {
      port2.close()
      await client.close()
    },
  }
}

async function nextBatch(port: MessagePort): Promise<number[]> {
  const [batch] = (await once(port, 'message')) as [readonly JournalEntry[]]
  return batch.map((each) => (each.kind === 'node' ? each.seq : -1))
}

test('entries of one turn form a batch; later entries wait for its answer', async () => {
  await using setup = connected()
  const { client, port, batch } = setup
  client.append(entry(0))
  client.append(entry(1))
  const first = client.durable()
  expect(await batch()).toEqual([0, 1])

  client.append(entry(2))
  const second = client.durable()
  client.append(entry(3))
  expect(client.durable()).toBe(second)
  let answered = false
  void first?.then(() => (answered = true))
  await new Promise(setImmediate)
  expect(answered).toBe(false)

  port.postMessage(null)
  expect(await batch()).toEqual([2, 3])
  await first
  port.postMessage(null)
  await second
  expect(client.durable()).toBeUndefined()
})

test('entries nobody waits for are sent after a delay, also after an answered batch', async () => {
  await using setup = connected()
  const { client, port, batch } = setup
  client.append(entry(0))
  const first = client.durable()
  await batch()
  client.append(entry(1))
  // Longer than a crowd gathers. From the same moment as what it comes after, so that it is due first however late both are.
  const later = setTimeout(() => client.append(entry(2)), 8)
  port.postMessage(null)
  await first
  expect(await batch()).toEqual([1, 2])
  clearTimeout(later)
  port.postMessage(null)
  await client.durable()
  expect(client.durable()).toBeUndefined()
})

test('callers waiting for one batch resume in order, a few per turn of the loop', async () => {
  await using setup = connected()
  const { client, port, batch } = setup
  client.append(entry(0))
  const gone: number[] = []
  const waits = Array.from({ length: 200 }, async (_, waiter) => {
    await client.durable()
    gone.push(waiter)
  })
  await batch()
  port.postMessage(null)
  await waits[0]
  const inFirstTurn = gone.length
  expect(client.durable()).toBeUndefined()
  await Promise.all(waits)
  expect(inFirstTurn).toBeLessThan(100)
  expect(gone).toEqual(Array.from({ length: 200 }, (_, waiter) => waiter))
})

test('a long queue is sent in order, in batches of limited size', async () => {
  await using setup = connected()
  const { client, port } = setup
  const total = journalLimits.maxBatchEntries * 2 + 10
  for (let seq = 0; seq < total; seq += 1) client.append(entry(seq))
  const seen: number[] = []
  port.on('message', (batch: readonly JournalEntry[]) => {
    expect(batch.length).toBeLessThanOrEqual(journalLimits.maxBatchEntries)
    seen.push(...batch.map((each) => (each.kind === 'node' ? each.seq : -1)))
    port.postMessage(null)
  })
  await client.durable()
  expect(seen).toEqual(Array.from({ length: total }, (_, seq) => seq))
})

test('pressure is the share of the queue limit in use', async () => {
  await using setup = connected()
  const { client, port, batch } = setup
  expect(client.pressure).toBe(0)
  const message = 'x'.repeat(journalLimits.maxQueuedBytes / 4)
  for (let seq = 0; seq < 4; seq += 1) client.append(nodeEntry({ rollout: '0-0', seq, message }))
  expect(client.pressure).toBeGreaterThan(1)
  expect(client.pressure).toBeLessThan(1.01)
  for (let answers = 0; answers < 4; answers += 1) {
    await batch()
    port.postMessage(null)
  }
  await client.durable()
  expect(client.pressure).toBe(0)
})

test('a failure is reported to waiting callers, to later callers and to the signal', async () => {
  await using setup = connected()
  const { client, port, batch } = setup
  client.append(entry(0))
  const sent = client.durable()
  await batch()
  client.append(entry(1))
  const queued = client.durable()
  port.postMessage(new MillraceError('disk_full', 'no space left').toWire())
  await expect(sent).rejects.toMatchObject({ code: 'disk_full' })
  await expect(queued).rejects.toMatchObject({ code: 'disk_full' })
  client.append(entry(2))
  await expect(client.durable()).rejects.toMatchObject({ code: 'disk_full' })
  expect(client.failure.reason).toMatchObject({ code: 'disk_full' })
  expect(client.pressure).toBe(0)
})

test('a writer that goes away counts as a failure', async () => {
  await using setup = connected()
  const { client, port, batch } = setup
  client.append(entry(0))
  const pending = client.durable()
  await batch()
  port.close()
  await expect(pending).rejects.toMatchObject({ code: 'store_failed' })
})

test('close waits for the appended entries and accepts no more', async () => {
  await using setup = connected()
  const { client, port, batch } = setup
  client.append(entry(0))
  const closing = client.close()
  expect(client.close()).toBe(closing)
  client.append(entry(1))
  expect(await batch()).toEqual([0])
  port.postMessage(null)
  await closing
  await expect(client.durable()).rejects.toMatchObject({ code: 'closed' })
  expect(client.failure.aborted).toBe(false)
})

test('an urgent caller and a due idle timer never send two batches at once', async () => {
  await using setup = connected()
  const { client, port } = setup
  let underWay = 0
  let most = 0
  const seen: number[] = []
  port.on('message', (batch: readonly JournalEntry[]) => {
    underWay += 1
    most = Math.max(most, underWay)
    for (const each of batch) if (each.kind === 'node') seen.push(each.seq)
    setImmediate(() => {
      underWay -= 1
      port.postMessage(null)
    })
  })
  const waits: Promise<void>[] = []
  const waitFor = (pending: Promise<void> | undefined): void => void (pending && waits.push(pending))
  for (let seq = 0; seq < 30; seq += 3) {
    await client.durable()
    // From an immediate, the loop comes to timers before it comes to immediates again.
    await new Promise(setImmediate)
    client.append(entry(seq))
    waitFor(client.durableSoon())
    const third = new Promise<void>((resolve) => {
      setTimeout(() => resolve(client.append(entry(seq + 2))), 24)
    })
    // The loop is held up until both timers are due: the client's sends, ours appends, and then the immediate of the one
    // in a hurry comes, with something new to send.
    const until = performance.now() + 30
    while (performance.now() < until) continue
    client.append(entry(seq + 1))
    waitFor(client.durable())
    await third
  }
  await Promise.all(waits)
  await client.durable()
  expect(most).toBe(1)
  expect(seen).toEqual(Array.from({ length: 30 }, (_, index) => index))
  expect(client.pressure).toBe(0)
})
