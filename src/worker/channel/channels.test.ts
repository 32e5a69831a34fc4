import { PassThrough, Writable } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { passOn } from './channels.ts'

/** A target that takes one chunk at a time, when the test says so. */
class SlowTarget extends Writable {
  readonly taken: string[] = []
  #taking: (() => void) | undefined

  constructor() {
    super({ highWaterMark: 1 })
  }

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.taken.push(chunk.toString())
    this.#taking = done
  }

  /** Ends the write under way, if there is one. */
  take(): void {
    const done = this.#taking
    this.#taking = undefined
    done?.()
  }
}

/** Goes on for some turns of the event loop until it is so: nothing here takes longer. */
async function turns(isSo: () => boolean): Promise<void> {
  for (let turn = 0; !isSo(); turn += 1) {
    if (turn === 5_000) expect.fail(`it is not so: ${String(isSo)}`)
    await nextTurn()
  }
}

test('sources paused repeatedly by one target lose no data and continue when it has room', async () => {
  const target = new SlowTarget()
  const sources = Array.from({ length: 20 }, () => new PassThrough())
  for (const source of sources) passOn(source, target)
  const sent: string[] = []
  for (let round = 0; round < 3; round += 1) {
    // Two chunks each: the second stays in its source until that is resumed.
    for (const [index, source] of sources.entries()) {
      for (const chunk of [`${round}.${index}.first`, `${round}.${index}.second`]) {
        sent.push(chunk)
        source.write(chunk)
      }
    }
    await turns(() => sources.every((source) => source.isPaused()))
    expect(target.listenerCount('drain'), 'one listener, however many sources wait').toBe(1)
    await turns(() => {
      target.take()
      return target.taken.length === sent.length && !sources.some((source) => source.isPaused())
    })
  }
  expect(target.taken.toSorted()).toEqual(sent.toSorted())
})

test('a source is not read while its target accepts nothing', async () => {
  const target = new SlowTarget()
  const source = new PassThrough({ highWaterMark: 1 })
  passOn(source, target)
  source.write('first')
  await turns(() => source.isPaused())
  expect(source.write('second'), 'the writer is held back, too').toBe(false)
  expect(target.writableLength).toBe('first'.length)
})
