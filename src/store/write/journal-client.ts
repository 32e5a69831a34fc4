import { MillraceError, type WireError } from '../../errors/index.ts'
import type { Recorder } from '../../inference/index.ts'
import { bytesOf, Resource } from '../../kit/index.ts'
import type { MessageNode } from '../../schema/index.ts'
import type { Journal, JournalEntry, NodeEntry } from './journal.ts'
import { describeExperts, PromptBases, suffixAfter } from './node-format.ts'

/**
 * How much may wait for the disk. `append` cannot refuse, so nothing is dropped at these limits: the scheduler admits no new
 * rollouts while `pressure` is 1 or more, and running rollouts wait in `durable` before they produce more.
 */
export const journalLimits = {
  maxQueuedEntries: 50_000,
  maxQueuedBytes: 64 * 1024 * 1024,
  /** One message to the writer, and so one transaction, is no larger; a single entry may be. */
  maxBatchEntries: 4_096,
  maxBatchBytes: 16 * 1024 * 1024,
} as const

/** A client's connection to the writer: a `MessagePort`, or something that forwards messages, such as a process's pipe. */
export interface JournalPort {
  postMessage(entries: readonly JournalEntry[]): void
  on(event: 'message', listener: (answer: WireError | null) => void): unknown
  on(event: 'close', listener: () => void): unknown
  off(event: 'message', listener: (answer: WireError | null) => void): unknown
  off(event: 'close', listener: () => void): unknown
  close(): void
}

/** How long an entry that nobody waits for may be held back, so that it shares a commit with entries that somebody waits for. */
const maxIdleMs = 20

const crowdMs = 5

const maxReleasedPerTurn = 64

interface Waiters extends PromiseWithResolvers<void> {
  count: number
}

function noWaiters(): Waiters {
  const waiters = { ...Promise.withResolvers<void>(), count: 0 }
  // A failure also shows in `failure`; the rejection must not end the process if the caller has gone.
  waiters.promise.catch(ignore)
  return waiters
}

class QueuedBatch {
  readonly openedAt = performance.now()
  readonly entries: JournalEntry[] = []
  readonly waiters: Waiters[] = []
  bytes = 0

  get isAwaited(): boolean {
    return this.waiters.length > 0
  }

  wait(): Promise<void> {
    let last = this.waiters.at(-1)
    if (!last || last.count >= maxReleasedPerTurn) {
      last = noWaiters()
      this.waiters.push(last)
    }
    last.count += 1
    return last.promise
  }
}

/**
 * The journal as one thread sees it: a port to the writer. At most one batch is under way; entries appended meanwhile become the
 * next one, so that batches grow with the load and all who wait share the cost of a commit.
 */
export class JournalClient extends Resource implements Journal {
  readonly #port: JournalPort
  readonly #failure = new AbortController()
  readonly #queued: QueuedBatch[] = []
  /** Waiters whose batch is committed, and that go on in the next turns of the event loop. */
  readonly #released: Waiters[] = []
  #tail: QueuedBatch | undefined
  #sent: QueuedBatch | undefined
  /** When the next batch goes: at the end of this turn if somebody waits, a little later in a crowd. */
  #departure: 'none' | 'crowd' | 'now' = 'none'
  #immediate: NodeJS.Immediate | undefined
  #crowdTimer: NodeJS.Timeout | undefined
  /** The timer for entries that nobody waits for. Not cancelled when they leave with another batch, as they nearly always do. */
  #idleTimer: NodeJS.Timeout | undefined
  #entries = 0
  #bytes = 0

  constructor(port: JournalPort) {
    super()
    this.#port = port
    port.on('message', this.#onAnswer)
    port.on('close', this.#onPortClose)
  }

  /** Aborts once, with the error, when the store can take no more. */
  get failure(): AbortSignal {
    return this.#failure.signal
  }

  get pressure(): number {
    return Math.max(this.#entries / journalLimits.maxQueuedEntries, this.#bytes / journalLimits.maxQueuedBytes)
  }

  append(entry: JournalEntry): void {
    if (this.isClosed || this.#failure.signal.aborted) return
    this.#put(this.#openBatch(), entry)
  }

  appendAll(entries: readonly JournalEntry[]): void {
    if (this.isClosed || this.#failure.signal.aborted) return
    // One batch is one transaction, so these entries are never split, though the batch grows past its size.
    const batch = this.#openBatch()
    for (const entry of entries) this.#put(batch, entry)
  }

  durable(): Promise<void> | undefined {
    return this.#hurried(this.durableSoon())
  }

  durableSoon(): Promise<void> | undefined {
    if (this.failure.aborted) return rejected(this.failure.reason)
    return this.isClosed ? rejected(this.closedSignal.reason) : this.#pending()
  }

  #openBatch(): QueuedBatch {
    const tail = this.#tail
    if (tail && tail.entries.length < journalLimits.maxBatchEntries && tail.bytes < journalLimits.maxBatchBytes) {
      return tail
    }
    const batch = new QueuedBatch()
    this.#tail = batch
    this.#queued.push(batch)
    this.#idleTimer ??= setTimeout(this.#onIdle, maxIdleMs)
    return batch
  }

  #put(batch: QueuedBatch, entry: JournalEntry): void {
    const bytes = entryBytes(entry)
    batch.entries.push(entry)
    batch.bytes += bytes
    this.#bytes += bytes
    this.#entries += 1
  }

  #pending(): Promise<void> | undefined {
    return (this.#tail ?? this.#sent)?.wait()
  }

  /** Sends the batch at the end of this turn if somebody waits for it. In a crowd it leaves with the crowd's timer. */
  #hurried(pending: Promise<void> | undefined): Promise<void> | undefined {
    if (pending && !this.#sent && this.#tail && this.#departure !== 'crowd') this.#depart('now')
    return pending
  }

  #depart(departure: 'crowd' | 'now'): void {
    if (departure === this.#departure) return
    this.#cancelDeparture()
    this.#departure = departure
    // All entries appended in this turn of the event loop go together.
    if (departure === 'now') this.#immediate = setImmediate(this.#send)
    else this.#crowdTimer = setTimeout(this.#send, crowdMs)
  }

  #cancelDeparture(): void {
    clearTimeout(this.#crowdTimer)
    clearImmediate(this.#immediate)
    this.#departure = 'none'
  }

  #cancelTimers(): void {
    this.#cancelDeparture()
    clearTimeout(this.#idleTimer)
    this.#idleTimer = undefined
  }

  readonly #onIdle = (): void => {
    this.#idleTimer = undefined
    // Entries that come while a batch is under way leave when that is answered.
    if (this.#sent || this.#departure !== 'none' || !this.#tail) return
    const leftMs = this.#tail.openedAt + maxIdleMs - performance.now()
    if (leftMs < 1) this.#send()
    else this.#idleTimer = setTimeout(this.#onIdle, leftMs)
  }

  readonly #send = (): void => {
    this.#cancelDeparture()
    const batch = this.#queued.shift()
    if (!batch) return
    if (batch === this.#tail) this.#tail = undefined
    this.#sent = batch
    // Copied, not transferred: their token arrays are those of the nodes, which are read again after they are recorded.
    this.#port.postMessage(batch.entries)
  }

  readonly #onAnswer = (failure: WireError | null): void => {
    if (failure) {
      this.#fail(MillraceError.fromWire(failure))
      return
    }
    const batch = this.#sent
    if (!batch) return
    this.#sent = undefined
    this.#entries -= batch.entries.length
    this.#bytes -= batch.bytes
    // Somebody came in meanwhile, so there is a crowd: a short wait makes one commit of several. A full batch does not wait.
    if (this.#queued.length > 1) this.#send()
    else if (this.#tail?.isAwaited) this.#depart('crowd')
    else if (this.#tail) this.#idleTimer ??= setTimeout(this.#onIdle, maxIdleMs)
    const isReleasing = this.#released.length > 0
    for (const waiters of batch.waiters) this.#released.push(waiters)
    if (!isReleasing) this.#release()
  }

  readonly #release = (): void => {
    this.#released.shift()?.resolve()
    if (this.#released.length > 0) setImmediate(this.#release)
  }

  readonly #onPortClose = (): void => {
    this.#fail(new MillraceError('store_failed', 'the thread that writes the journal has ended; run the same again'))
  }

  #fail(error: MillraceError): void {
    if (this.failure.aborted) return
    this.#cancelTimers()
    const lost = [this.#sent]
    for (let batch = this.#queued.shift(); batch; batch = this.#queued.shift()) lost.push(batch)
    this.#sent = undefined
    this.#tail = undefined
    this.#entries = 0
    this.#bytes = 0
    this.#failure.abort(error)
    for (const batch of lost) for (const waiters of batch?.waiters ?? []) waiters.reject(error)
  }

  /** Waits for the entries appended so far. A failure is not thrown here: `failure` and `durable` have told it. */
  protected async onClose(): Promise<void> {
    if (!this.failure.aborted) await this.#hurried(this.#pending())?.catch(ignore)
    this.#cancelTimers()
    this.#port.off('message', this.#onAnswer)
    this.#port.off('close', this.#onPortClose)
    this.#port.close()
  }
}

/** A session's recorder: puts its nodes into the journal under one attempt of one rollout. */
export class AttemptRecorder implements Recorder {
  readonly #journal: Journal
  readonly #rollout: string
  readonly #attempt: number
  readonly #bases = new PromptBases()

  constructor(journal: Journal, rollout: string, attempt: number) {
    this.#journal = journal
    this.#rollout = rollout
    this.#attempt = attempt
  }

  node(node: MessageNode, json: string): void {
    const { tokens } = node
    const experts = tokens?.routedExperts
    const promptIds = tokens?.promptIds
    const base = promptIds && this.#bases.find(promptIds)
    if (promptIds) this.#bases.add(node, base)
    const entry: NodeEntry = {
      kind: 'node',
      rollout: this.#rollout,
      attempt: this.#attempt,
      seq: node.seq,
      parent: node.parent,
      hash: node.hash,
      message: json,
      sampled: node.sampled,
      at: node.at,
      meta: metaOf(node, base?.seq),
      ...(tokens && { ids: compact(tokens.ids), logprobs: compact(tokens.logprobs) }),
      ...(promptIds && { promptIds: compact(base ? suffixAfter(base, promptIds) : promptIds) }),
      ...(tokens?.version !== undefined && { version: tokens.version }),
      ...(experts && { routedExperts: compact(bytesOf(experts.experts)) }),
    }
    this.#journal.append(entry)
  }

  version(node: number, version: string): void {
    this.#journal.append({ kind: 'version', rollout: this.#rollout, attempt: this.#attempt, node, version })
  }

  synced(): Promise<void> | undefined {
    return this.#journal.durable()
  }
}

/** The array itself if it is all of its buffer, or else a copy. */
function compact<Numbers extends Int32Array | Float32Array | Uint8Array>(numbers: Numbers): Numbers {
  return numbers.byteLength === numbers.buffer.byteLength ? numbers : (numbers.slice() as Numbers)
}

/** The JSON of a `NodeMeta`; undefined fields are left out. */
function metaOf({ call, tool, tools, discarded, tokens }: MessageNode, base: number | undefined): string | null {
  const versionSpans = tokens?.versionSpans
  const experts = tokens?.routedExperts
  const routedExperts = experts && describeExperts(experts)
  if (!call && !tool && !tools && !discarded && !versionSpans && !experts && base === undefined) return null
  return JSON.stringify({ call, tool, tools, discarded, versionSpans, promptAfter: base, routedExperts })
}

/** How many bytes an entry takes while it waits: its texts and tokens, and a flat share for the rest. */
function entryBytes(entry: JournalEntry): number {
  let bytes = 128
  for (const name in entry) {
    const value: unknown = entry[name as keyof JournalEntry]
    if (typeof value === 'string') bytes += value.length
    else if (ArrayBuffer.isView(value)) bytes += value.byteLength
    else if (Array.isArray(value)) for (const text of value as readonly string[]) bytes += text.length
  }
  return bytes
}

function ignore(): void {}

function rejected(reason: unknown): Promise<void> {
  const promise = Promise.reject(reason)
  promise.catch(ignore)
  return promise
}
