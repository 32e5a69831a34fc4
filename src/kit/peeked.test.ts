import { expect, test } from 'vitest'
import { peeked } from './peeked.ts'

async function* numbers(log: string[]): AsyncGenerator<number> {
  try {
    for (let number = 0; number < 3; number += 1) {
      log.push(`read ${number}`)
      yield number
    }
  } finally {
    log.push('closed')
  }
}

test('reads one ahead and gives everything in order', async () => {
  const log: string[] = []
  await using source = await peeked(numbers(log))
  expect(log).toEqual(['read 0'])
  expect(await Array.fromAsync(source)).toEqual([0, 1, 2])
})

test('what is wrong with a source shows at once', async () => {
  await expect(
    peeked({
      [Symbol.asyncIterator]: () => ({ next: () => Promise.reject(new Error('no such file')) }),
    }),
  ).rejects.toThrow('no such file')
})

test('closes its source when it is left early, and when it is never read', async () => {
  const left: string[] = []
  for await (const _number of await peeked(numbers(left))) break
  expect(left.at(-1)).toBe('closed')
  const unread: string[] = []
  {
    await using _source = await peeked(numbers(unread))
  }
  expect(unread).toEqual(['read 0', 'closed'])
})

test('an empty source is empty', async () => {
  async function* nothing(): AsyncGenerator<number> {}
  expect(await Array.fromAsync(await peeked(nothing()))).toEqual([])
})
