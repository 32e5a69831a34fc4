import { expect, test } from 'vitest'
import { IdleResources } from './idle-resources.ts'
import { Resource } from './lifecycle.ts'

class Part extends Resource {
  readonly #onClose: () => Promise<void>

  constructor(onClose: () => Promise<void> = () => Promise.resolve()) {
    super()
    this.#onClose = onClose
  }

  protected async onClose(): Promise<void> {
    await this.#onClose()
  }
}

function parts({ max = 2, idleMs = 60_000 } = {}) {
  const faults: unknown[] = []
  return {
    faults,
    all: new IdleResources<Part>({ max, idleMs, onFault: (error) => faults.push(error) }),
  }
}

const made = (part = new Part()) => Promise.resolve(part)

test('a further resource is refused until one ends', async () => {
  const { all } = parts()
  const one = await all.open('a', () => made())
  await all.open('b', () => made())
  await expect(all.open('c', () => made())).rejects.toMatchObject({ code: 'overloaded' })
  await one.close()
  expect(all.has('a')).toBe(false)
  await all.open('c', () => made())
  await all.close()
  expect(all.size).toBe(0)
})

test('a released resource makes room for others, until it is used again', async () => {
  const { all } = parts()
  await all.open('a', () => made())
  await all.open('b', () => made())
  all.release('a')
  all.release('b')
  await all.use('a', () => Promise.resolve())
  await all.open('c', () => made())
  expect(['a', 'b', 'c'].filter((name) => all.has(name))).toEqual(['a', 'c'])
  await expect(all.open('d', () => made())).rejects.toMatchObject({ code: 'overloaded' })
  await all.close()
})

test('an unused resource is closed, and one in use is not', async () => {
  const { all } = parts({ idleMs: 1 })
  const { promise, resolve } = Promise.withResolvers<void>()
  const used = all.open('a', () => made()).then(() => all.use('a', () => promise))
  const unused = await all.open('b', () => made())
  await expect.poll(() => unused.isClosed).toBe(true)
  expect(all.has('a')).toBe(true)
  resolve()
  await used
  await expect.poll(() => all.size).toBe(0)
  await all.close()
})

test('a resource takes the place of another with its name', async () => {
  const { all } = parts()
  const first = await all.open('a', () => made())
  const second = await all.open('a', () => made())
  expect([first.isClosed, second.isClosed, all.size]).toEqual([true, false, 1])
  await all.close()
  expect(second.isClosed).toBe(true)
})

test('closing waits for what is being opened, and for resources that close themselves', async () => {
  const { all, faults } = parts()
  const slow = Promise.withResolvers<void>()
  const closing = await all.open('a', () => made(new Part(() => slow.promise)))
  const opening = Promise.withResolvers<Part>()
  const isMaking = Promise.withResolvers<void>()
  const opened = all.open('b', () => {
    isMaking.resolve()
    return opening.promise
  })
  await isMaking.promise
  const late = new Part(() => Promise.reject(new Error('stuck')))
  void closing.close()
  let hasClosed = false
  const closed = all.close().then(() => (hasClosed = true))
  opening.resolve(late)
  await expect(opened).rejects.toMatchObject({ code: 'closed' })
  expect(late.isClosed).toBe(true)
  expect(hasClosed).toBe(false)
  slow.resolve()
  await closed
  expect(faults).toEqual([new Error('stuck')])
  await expect(all.open('c', () => made())).rejects.toMatchObject({ code: 'closed' })
})

test('an abandoned opening leaves nothing behind', async () => {
  const { all } = parts()
  const given = new AbortController()
  const part = new Part()
  const opening = Promise.withResolvers<Part>()
  const opened = all.open('a', () => opening.promise, given.signal)
  given.abort(new Error('gone'))
  opening.resolve(part)
  await expect(opened).rejects.toThrow('gone')
  expect([part.isClosed, all.size]).toEqual([true, 0])
  await all.close()
})
