import { expect, test } from 'vitest'
import { z } from 'zod'
import { defineEnvironment } from '../../env/index.ts'
import { checkTask, checkTasks, JsonText } from './request-body.ts'

test('task ids come from the environment, also numbers', async () => {
  const environment = defineEnvironment({
    name: 'numbered',
    task: z.object({ id: z.any().optional() }),
    tasks: () => [],
    taskId: ({ id }) => id,
    prompt: () => 'hello',
    reward: () => 1,
  })
  const tasks = [{ id: 7 }, { id: 'seven' }, { id: null }, {}]
  const checked = await checkTasks({ environment, tasks, maxTaskBytes: 1_000, salt: '' })
  expect(checked.tasks.map(({ name }) => name)).toEqual(['7', 'seven', undefined, undefined])
})

test('a `taskId` that throws gives the same error as in an evaluation', async () => {
  const environment = defineEnvironment({
    name: 'unnamed',
    task: z.object({}),
    tasks: () => [],
    taskId: (): string => {
      throw new TypeError('no name')
    },
    prompt: () => 'hello',
    reward: () => 1,
  })
  const checking = checkTasks({ environment, tasks: [{}], maxTaskBytes: 1_000, salt: '' })
  await expect(checking).rejects.toMatchObject({
    code: 'task_invalid',
    rawMessage: expect.stringContaining('taskId threw TypeError') as string,
  })
})

test('a task that is too large is refused before it is parsed', async () => {
  const environment = defineEnvironment({
    name: 'any',
    task: z.unknown(),
    tasks: () => [],
    prompt: () => 'hello',
    reward: () => 1,
  })
  const noJson = new JsonText('é'.repeat(10))
  expect(await checkTask(environment, noJson, 19)).toBe('has 20 bytes, and a task has at most 19')
  expect(await checkTask(environment, noJson, 20)).toContain('not JSON')
})
