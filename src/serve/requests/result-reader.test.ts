import { describe, expect, it } from 'vitest'
import { recordWithoutRun } from '../../rollout/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { ResultReader, type SettledRollout } from './active-request.ts'

const settled = (id: string): SettledRollout => ({
  id,
  record: recordWithoutRun({
    id,
    environment: 'e',
    model: 'm',
    task: { index: 0, id: '0' },
    sample: 0,
    attempt: 1,
    outcome: 'cancelled',
    error: new MillraceError('cancelled', 'why not'),
  }),
})

describe('ResultReader', () => {
  it('yields the earlier results, then the new ones, then ends', async () => {
    const left: string[] = []
    const reader = new ResultReader(3, ['0-0'], (_reader, why) => left.push(why))
    reader.push(settled('1-0'))
    const ids: string[] = []
    for await (const { id } of reader) {
      ids.push(id)
      if (id === '1-0') queueMicrotask(() => reader.push(settled('2-0')))
    }
    expect(ids).toEqual(['0-0', '1-0', '2-0'])
    expect(left).toEqual(['gone'])
  })

  it('keeps few records for a slow reader, but the ids of all', async () => {
    const reader = new ResultReader(1_000, [], () => {})
    for (let index = 0; index < 1_000; index += 1) reader.push(settled(`${index}-0`))
    const all = await Array.fromAsync(reader)
    expect(all.map(({ id }) => id)).toEqual(Array.from({ length: 1_000 }, (_, index) => `${index}-0`))
    expect(all.filter(({ record }) => record).length).toBeLessThanOrEqual(16)
  })

  it('can be left while it waits, once', async () => {
    const left: string[] = []
    const reader = new ResultReader(1, [], (_reader, why) => left.push(why))
    const waiting = reader.next()
    await reader.return()
    expect(await waiting).toEqual({ done: true, value: undefined })
    await reader.return()
    reader.release()
    reader.push(settled('0-0'))
    expect(await reader.next()).toEqual({ done: true, value: undefined })
    expect(left).toEqual(['gone'])
  })

  it('reports a reader that leaves although its results are wanted', async () => {
    const left: string[] = []
    const reader = new ResultReader(1, [], (_reader, why) => left.push(why))
    reader.release()
    await reader.return()
    expect(left).toEqual(['failed'])
  })

  it('fails after the results received before', async () => {
    const reader = new ResultReader(2, [], () => {})
    reader.push(settled('0-0'))
    reader.fail(new MillraceError('closed', 'no more'))
    expect(await reader.next()).toMatchObject({ value: { id: '0-0' } })
    await expect(reader.next()).rejects.toMatchObject({ code: 'closed' })
  })
})
