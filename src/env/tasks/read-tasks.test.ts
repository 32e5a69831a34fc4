import { mkdtempDisposable, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test, vi } from 'vitest'
import { z } from 'zod'
import { MillraceError } from '../../errors/index.ts'
import { csv } from './csv.ts'
import { defineEnvironment, type Environment, type TaskInput } from '../define/define-environment.ts'
import { jsonl } from './jsonl.ts'
import { readTasks } from './read-tasks.ts'
import type { InvalidTask, TaskItem } from './task-stream.ts'

const taskSchema = z.object({ question: z.string(), answer: z.number() })

function environmentWith(tasks: () => TaskInput | Promise<TaskInput>, more: Partial<Environment> = {}): Environment {
  return {
    ...defineEnvironment({
      name: 'sums',
      task: taskSchema,
      tasks,
      prompt: ({ task }) => task.question,
      reward: () => 1,
    }),
    ...more,
  }
}

function rows(count: number): { question: string; answer: number }[] {
  return Array.from({ length: count }, (_, answer) => ({ question: 'how many?', answer }))
}

async function all(environment: Environment, limit?: number): Promise<TaskItem[]> {
  return await Array.fromAsync(await readTasks(environment, {}, { limit }))
}

function problemOf(item: TaskItem | undefined): string | undefined {
  return item?.problem?.rawMessage
}

describe('readTasks', () => {
  test('validates each row and gives it an index, an id and a digest, and keeps it', async () => {
    const items = await all(environmentWith(() => [{ ...rows(1)[0], more: true }, ...rows(1)]))
    expect(items).toEqual([
      {
        index: 0,
        id: '0',
        digest: expect.stringMatching(/^[0-9a-f]{32}$/),
        row: '{"question":"how many?","answer":0,"more":true}',
        task: { question: 'how many?', answer: 0 },
      },
      {
        index: 1,
        id: '1',
        digest: expect.stringMatching(/^[0-9a-f]{32}$/),
        row: '{"question":"how many?","answer":0}',
        task: { question: 'how many?', answer: 0 },
      },
    ])
    // Row and digest are of what was read, not of what the schema left of it.
    expect(items[0]?.digest).not.toBe(items[1]?.digest)
    expect((await all(environmentWith(() => rows(1))))[0]?.digest).toBe(items[1]?.digest)
  })

  test('uses the id from the environment', async () => {
    const numbered = environmentWith(() => rows(2), { taskId: () => 7 })
    expect((await all(numbered)).map(({ id }) => id)).toEqual(['7', '7'])
    const named = environmentWith(() => rows(2), { taskId: (task) => `sum-${(task as { answer: number }).answer}` })
    expect((await all(named)).map(({ id }) => id)).toEqual(['sum-0', 'sum-1'])
  })

  test('a single row that is a list is explained', async () => {
    const [item] = await all(environmentWith(() => [rows(2)] as never))
    expect(item?.problem?.rawMessage).toMatch(/expected object, got array\. .* It is a list: .* jq -c '\.\[\]'\)\.$/)
  })

  test('an invalid row affects only itself, and is named', async () => {
    await using folder = await mkdtempDisposable(join(tmpdir(), 'millrace-tasks-'))
    const path = join(folder.path, 'questions.jsonl')
    const lines = rows(7_313).map((row, index) => (index === 7_311 ? { question: 'which?', answer: '7' } : row))
    await writeFile(path, lines.map((line) => `${JSON.stringify(line)}\n`).join('') + '{broken\n')
    const items = await all(environmentWith(() => jsonl(path)))
    expect(items).toHaveLength(7_314)
    const invalid = items.filter((item): item is InvalidTask => item.problem !== undefined)
    expect(invalid.map(({ index }) => index)).toEqual([7_311, 7_313])
    expect(invalid[0]?.problem).toMatchObject({
      code: 'task_invalid',
      rawMessage:
        "questions.jsonl line 7312: answer: expected number, got string. Correct the row, or the environment's `task` schema.",
    })
    expect(invalid[1]?.problem.rawMessage).toMatch(/^questions.jsonl line 7314: not valid JSON: /)
  })

  test('a row that is not JSON, or has no task id, affects only itself', async () => {
    const [item] = await all(environmentWith(() => [{ question: 'x', answer: 1n }]))
    expect(problemOf(item)).toMatch(/^tasks\[0\]: not JSON: .*BigInt/)
    const unnamed = environmentWith(() => rows(1), {
      taskId: () => {
        throw new Error('no name')
      },
    })
    expect(problemOf((await all(unnamed))[0])).toBe('tasks[0]: taskId threw Error: no name')
    const misnamed = environmentWith(() => rows(1), { taskId: (() => ({ id: 1 })) as never })
    expect(problemOf((await all(misnamed))[0])).toBe(
      'tasks[0]: taskId: it must return a text or a number, not a value of type object',
    )
  })

  test('a table without a required column is reported with its columns', async () => {
    await using folder = await mkdtempDisposable(join(tmpdir(), 'millrace-tasks-'))
    const path = join(folder.path, 'sums.csv')
    const task = z.object({ question: z.string(), answer: z.coerce.number(), level: z.string().optional() })
    const problemIn = async (content: string): Promise<string | undefined> => {
      await writeFile(path, content)
      return problemOf((await all(environmentWith(() => csv(path), { task })))[0])
    }
    expect(await problemIn('question,value\nhow many?,7\n')).toBe(
      'sums.csv row 2: there is no "answer" among the columns "question", "value" (answer: expected number, got NaN). ' +
        "Correct the columns, or the environment's `task` schema.",
    )
    expect(await problemIn('question;answer\nhow many?;7\n')).toContain(
      'there is no "question", "answer" among the columns "question;answer"; ' +
        "if this is more than one column, write csv(path, { delimiter: ';' }) (",
    )
    expect(await problemIn('question\tanswer\nhow many?\t7\n')).toContain(String.raw`{ delimiter: '\t' }`)
    const many = Array.from({ length: 40 }, (_, column) => `c${column}`).join(',')
    expect(await problemIn(`${many}\n${many}\n`)).toContain('"c10", "c11" and 28 more (')
    // All columns are there, so it is the row.
    expect(await problemIn('question,answer\nhow many?,many\n')).toBe(
      `sums.csv row 2: answer: expected number, got "many". Correct the row, or the environment's \`task\` schema.`,
    )
  })

  test('waits for an asynchronous schema', async () => {
    const task = z.object({ answer: z.number().refine(async (answer) => answer > 0, 'must be positive') })
    const items = await all(environmentWith(() => rows(2), { task }))
    expect(items.map(problemOf)).toEqual([expect.stringMatching(/^tasks\[0\]: answer: must be positive\. /), undefined])
  })

  test('reads an endless generator only as far as needed, and closes it', async () => {
    let made = 0
    let isClosed = false
    const environment = environmentWith(async function* () {
      try {
        for (;;) {
          made += 1
          yield { question: 'more?', answer: made }
        }
      } finally {
        isClosed = true
      }
    })
    const stream = await readTasks(environment, {}, { limit: 3 })
    expect(stream.total()).toEqual({ count: 3, exact: false })
    expect(await Array.fromAsync(stream)).toHaveLength(3)
    expect({ made, isClosed }).toEqual({ made: 3, isClosed: true })
    expect(stream.total()).toEqual({ count: 3, exact: true })
  })

  test('closes the source when its reader stops', async () => {
    let isClosed = false
    const environment = environmentWith(function* () {
      try {
        yield* rows(10)
      } finally {
        isClosed = true
      }
    })
    for await (const { index } of await readTasks(environment, {})) if (index === 1) break
    expect(isClosed).toBe(true)
  })

  test('gives the number of tasks, with the limit applied', async () => {
    const stream = await readTasks(
      environmentWith(() => rows(5)),
      {},
    )
    expect({ label: stream.label, total: stream.total() }).toEqual({
      label: 'array of 5',
      total: { count: 5, exact: true },
    })
    expect(
      (
        await readTasks(
          environmentWith(() => rows(5)),
          {},
          { limit: 2 },
        )
      ).total(),
    ).toEqual({ count: 2, exact: true })
    const endless = await readTasks(
      environmentWith(async () => new Set(rows(2))),
      {},
    )
    expect(endless.total()).toBeUndefined()
    await Array.fromAsync(endless)
    expect(endless.total()).toEqual({ count: 2, exact: true })
  })

  test('says after how many tasks a source failed', async () => {
    const environment = environmentWith(async function* () {
      yield* rows(2)
      throw new Error('connection lost')
    })
    const seen: number[] = []
    const reading = async () => {
      for await (const { index } of await readTasks(environment, {})) seen.push(index)
    }
    await expect(reading()).rejects.toMatchObject({
      code: 'tasks_failed',
      rawMessage: 'reading on after 2 tasks of sums (generator) threw Error: connection lost',
      data: { after: 2 },
    })
    expect(seen).toEqual([0, 1])
  })

  test('reports an error from closing a source early', async () => {
    const environment = environmentWith(async function* () {
      try {
        yield* rows(10)
      } finally {
        await Promise.reject(new Error('still in use'))
      }
    })
    await expect(all(environment, 2)).rejects.toMatchObject({
      code: 'tasks_failed',
      rawMessage: expect.stringContaining('after 2 tasks of sums (generator) threw Error'),
    })
  })

  test('does not wait for a source that never closes', async () => {
    const environment = environmentWith(async function* () {
      try {
        yield* rows(10)
      } finally {
        await new Promise(() => {})
      }
    })
    const read = async (signal?: AbortSignal) => Array.fromAsync(await readTasks(environment, {}, { limit: 2, signal }))
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    using _time = { [Symbol.dispose]: () => void vi.useRealTimers() }
    const isWaitedFor = () => vi.waitFor(() => expect(vi.getTimerCount()).toBe(1))

    const controller = new AbortController()
    const stopped = read(controller.signal)
    await isWaitedFor()
    controller.abort()
    expect(await stopped).toHaveLength(2)
    expect(vi.getTimerCount()).toBe(0)

    const left = read()
    await isWaitedFor()
    vi.runAllTimers()
    expect(await left).toHaveLength(2)
  })

  test('a missing file keeps its error code', async () => {
    await expect(all(environmentWith(() => jsonl('/nowhere.jsonl')))).rejects.toMatchObject({ code: 'file_not_found' })
  })

  test('stops waiting for a stuck source when the run is stopped', async () => {
    const controller = new AbortController()
    const reason = new MillraceError('cancelled', 'enough')
    const environment = environmentWith(async function* () {
      yield rows(1)[0]
      controller.abort(reason)
      await new Promise(() => {})
    })
    const reading = async () => Array.fromAsync(await readTasks(environment, {}, { signal: controller.signal }))
    await expect(reading()).rejects.toBe(reason)
    await expect(reading()).rejects.toBe(reason)
  })

  test.each([
    ['a path', () => 'questions.jsonl', /it returned the text "questions.jsonl"/],
    ['nothing', () => undefined, /it returned undefined/],
    ['a number', () => 7, /it returned a value of type number/],
    ['a plain object', () => ({}), /it returned a value of type object/],
  ])('refuses %s', async (_what, tasks, message) => {
    const environment = environmentWith(tasks as () => TaskInput)
    await expect(readTasks(environment, {})).rejects.toThrow(message)
  })

  test('refuses a generator that it already read, and accepts sources that can be read again', async () => {
    const generator = rows(2).values()
    const once = environmentWith(() => generator)
    expect(await all(once, 1)).toHaveLength(1)
    await expect(readTasks(once, {})).rejects.toMatchObject({
      code: 'env_invalid',
      rawMessage: expect.stringMatching(
        /^`tasks` returned the same generator again, .* only once\. Create the generator inside the function/,
      ),
    })
    const set = new Set(rows(2))
    const often = environmentWith(() => set)
    expect(await all(often)).toEqual(await all(often))
  })

  test('reports an error thrown by `tasks`', async () => {
    const environment = environmentWith(() => {
      throw new Error('no network')
    })
    await expect(readTasks(environment, {})).rejects.toMatchObject({
      code: 'tasks_failed',
      rawMessage: '`tasks` of sums threw Error: no network',
    })
  })
})
