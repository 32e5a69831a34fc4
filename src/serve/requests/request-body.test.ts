import { expect, test } from 'vitest'
import { z } from 'zod'
import { defineEnvironment } from '../../env/index.ts'
import { checkTasks } from './request-body.ts'

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
