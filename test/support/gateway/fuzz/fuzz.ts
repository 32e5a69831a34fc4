import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import type { MillraceError } from '../../../../src/errors/index.ts'
import { gatewayEvents } from '../../../../src/gateway/index.ts'
import { hash32, seededRandom } from '../../../../src/kit/index.ts'

/** A case that has not ended by then hangs. */
const deadlineMs = 20_000

export interface FuzzOptions {
  readonly count: number
  /** So many run together, where they wait more than they work. */
  readonly atOnce?: number
}

/** Whether `FUZZ_CASE` asks for a single case. What holds for all cases together is then not checked, and the test is skipped. */
export const isOneCase = process.env['FUZZ_CASE'] !== undefined
export const whySkipped = 'FUZZ_CASE runs a single case: what holds for all together is not checked'

/**
 * So many cases of one kind, each made from its seed alone: `FUZZ_CASE=streams:4711` runs that one and no other. Prints and
 * returns how many there were.
 */
export async function fuzz(
  name: string,
  { count, atOnce = 1 }: FuzzOptions,
  run: (chance: Chance) => void | Promise<void>,
): Promise<number> {
  const [onlyName, onlySeed] = (process.env['FUZZ_CASE'] ?? '').split(':')
  if (onlyName !== '' && onlyName !== name) return 0
  const [first, end] = onlyName === name ? [Number(onlySeed), Number(onlySeed) + 1] : [0, count]
  let next = first
  const lane = async (): Promise<void> => {
    while (next < end) {
      const seed = next
      next += 1
      try {
        const running = run(new Chance(seed))
        if (running) await withinDeadline(running)
      } catch (error) {
        next = end
        throw new Error(`FUZZ_CASE=${name}:${seed} runs the case that failed`, { cause: error })
      }
    }
  }
  await Promise.all(Array.from({ length: atOnce }, lane))
  process.stdout.write(`${name}: ${end - first} cases\n`)
  return end - first
}

async function withinDeadline(running: Promise<void>): Promise<void> {
  const { promise, reject } = Promise.withResolvers<never>()
  const timer = setTimeout(() => reject(new Error(`it has not ended after ${deadlineMs} ms`)), deadlineMs)
  try {
    await Promise.race([running, promise])
  } finally {
    clearTimeout(timer)
  }
}

/**
 * Faults of the gateway's own: what it tells a client is then well-formed, too, but nothing that a client or a backend does
 * may lead to one.
 */
export class OwnFaults implements Disposable {
  readonly #faults: MillraceError[] = []
  readonly #watch = gatewayEvents.subscribe((event) => {
    if (event.kind === 'interaction-end' && event.error?.code === 'internal') this.#faults.push(event.error)
  })

  throwIfAny(): void {
    const [fault] = this.#faults
    if (fault) throw fault
  }

  [Symbol.dispose](): void {
    this.#watch[Symbol.dispose]()
  }
}

/** What is left in use once everything that can be collected is. */
export function heapBytes(): number {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  collect()
  collect()
  return process.memoryUsage().heapUsed
}

/** Choices that follow from a seed. */
export class Chance {
  readonly seed: number
  /** In [0, 1). */
  readonly next: () => number

  constructor(seed: number) {
    this.seed = seed
    this.next = seededRandom(hash32(seed))
  }

  below(limit: number): number {
    return Math.floor(this.next() * limit)
  }

  is(share: number): boolean {
    return this.next() < share
  }

  pick<Value>(values: readonly Value[]): Value {
    return values[this.below(values.length)] as Value
  }
}
