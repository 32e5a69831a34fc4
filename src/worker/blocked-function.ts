import type { ChildProcess } from 'node:child_process'
import { Duplex } from 'node:stream'
import type { Worker } from 'node:worker_threads'
import { AbortScope, nameBlockedThread, raced } from '../kit/index.ts'
import { isJsonObject } from '../schema/index.ts'
import { probeDescriptor, type BlockedFunctionAnswer } from './blocked-function-probe.ts'

/** The thread or process of a blocked loop, as its supervisor holds it. */
export type BlockedTarget =
  | { readonly kind: 'thread'; readonly worker: Worker }
  /** Forked with a pipe at `probeDescriptor`, and running `offerProbe`. */
  | { readonly kind: 'process'; readonly child: ChildProcess }

/** The probe itself gives up after a second; this limit is for a process that is stopped as a whole. */
const maxWaitMs = 1_500
/** The longest answer: it is a name and a place. */
const maxLineChars = 64 * 1024

/**
 * What a worker's loop is stuck in, as `name (file:line)`: the user's own function if one is running. Undefined if it cannot
 * be told within a second or so. Never throws; the worker goes on as if nobody had looked.
 */
export async function nameBlockedFunction(target: BlockedTarget, signal: AbortSignal): Promise<string | undefined> {
  if (target.kind === 'thread') return await nameBlockedThread(target.worker, signal)
  const pipe = target.child.stdio[probeDescriptor]
  return pipe instanceof Duplex ? await clientOf(pipe).ask(signal) : undefined
}

const clients = new WeakMap<Duplex, BlockedFunctionClient>()

function clientOf(pipe: Duplex): BlockedFunctionClient {
  const known = clients.get(pipe)
  if (known) return known
  const client = new BlockedFunctionClient(pipe)
  clients.set(pipe, client)
  return client
}

/** The supervisor's end of a probe's pipe. Lives as long as the pipe. */
class BlockedFunctionClient {
  readonly #pipe: Duplex
  /** The questions that are waited for just now: a second and a half each at most. */
  readonly #waiting = new Map<number, (name: string | undefined) => void>()
  #lastQuestion = 0
  #unread = ''

  constructor(pipe: Duplex) {
    this.#pipe = pipe
    // Without a listener an error would end this process; callers that wait learn of it by `close`.
    pipe.on('data', this.#onData).on('error', () => {})
    pipe.on('close', () => {
      for (const resolve of this.#waiting.values()) resolve(undefined)
    })
  }

  async ask(signal: AbortSignal): Promise<string | undefined> {
    if (!this.#pipe.writable) return undefined
    const question = (this.#lastQuestion += 1)
    const { promise, resolve } = Promise.withResolvers<string | undefined>()
    this.#waiting.set(question, resolve)
    using scope = new AbortScope(signal, maxWaitMs)
    try {
      this.#pipe.write(`${question}\n`)
      return await raced(promise, scope.signal)
    } catch {
      return undefined
    } finally {
      this.#waiting.delete(question)
    }
  }

  readonly #onData = (chunk: Buffer): void => {
    const lines = (this.#unread + chunk.toString()).split('\n')
    const begun = lines.pop() ?? ''
    this.#unread = begun.length > maxLineChars ? '' : begun
    for (const line of lines) {
      const { question, name } = answerIn(line)
      if (typeof question === 'number') this.#waiting.get(question)?.(typeof name === 'string' ? name : undefined)
    }
  }
}

/** Reads an answer. The environment's code is in the same process and can write to the same pipe: other lines are ignored. */
function answerIn(line: string): { readonly [field in keyof BlockedFunctionAnswer]?: unknown } {
  try {
    const value: unknown = JSON.parse(line)
    return isJsonObject(value) ? value : {}
  } catch {
    return {}
  }
}
