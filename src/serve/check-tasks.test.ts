import { expect, test } from 'vitest'
import { z } from 'zod'
import { defineEnvironment } from '../env/index.ts'
import { checkTasks } from './_check-tasks.ts'

test('tasks are called what the environment calls them, also where that is a number', async () => {
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
