import { describe, expect, expectTypeOf, test } from 'vitest'
import { z } from 'zod'
import type { Message } from '../../schema/index.ts'
import type { RewardContext } from './context.ts'
import { commandReward } from '../rewards/command-reward.ts'
import { defineEnvironment, type Environment } from './define-environment.ts'
import type { GroupMember } from '../rewards/reward.ts'
import { jsonl } from '../tasks/jsonl.ts'
import { judge } from '../rewards/judge.ts'

const task = z.object({ question: z.string(), answer: z.coerce.number() })
const options = z.object({ size: z.number().default(3) })
type Task = { question: string; answer: number }
type Options = { size: number }

/** The types are the test: the compiler checks this file, and every `@ts-expect-error` in it must hide an error. */
describe('defineEnvironment', () => {
  test('infers everything from the schemas and from setup', () => {
    const environment = defineEnvironment({
      name: 'sums',
      description: 'adds',
      options,
      task,
      tasks: ({ size }) => {
        expectTypeOf(size).toEqualTypeOf<number>()
        return Array.from({ length: size }, (_, answer) => ({ question: 'how many?', answer }))
      },
      taskId: ({ question }) => question,
      setup: ({ task: { answer }, options: { size } }) => {
        expectTypeOf(answer).toEqualTypeOf<number>()
        expectTypeOf(size).toEqualTypeOf<number>()
        return { guesses: [answer], log: new Map<string, number>() }
      },
      prompt: (context) => {
        expectTypeOf(context.task).toEqualTypeOf<Task>()
        expectTypeOf(context.options).toEqualTypeOf<Options>()
        expectTypeOf(context.state.guesses).toEqualTypeOf<number[]>()
        return context.task.question
      },
      teardown: ({ state }) => {
        expectTypeOf(state?.log).toEqualTypeOf<Map<string, number> | undefined>()
      },
      tools: {
        guess: {
          description: 'guesses',
          parameters: z.object({ value: z.number(), note: z.string().optional() }),
          run: (args, context) => {
            expectTypeOf(args).toEqualTypeOf<{ value: number; note?: string | undefined }>()
            expectTypeOf(context.task).toEqualTypeOf<Task>()
            context.state.guesses.push(args.value)
            return args.value === context.task.answer ? 'right' : { hint: context.task.answer > args.value ? 1 : -1 }
          },
        },
        look: {
          parameters: z.object({ at: z.array(z.string()) }),
          exclusive: true,
          resume: 'reuse',
          run: async ({ at }, { state, options: { size } }) => {
            expectTypeOf(at).toEqualTypeOf<string[]>()
            expectTypeOf(size).toEqualTypeOf<number>()
            return [{ type: 'text', text: String(state.guesses.length) }]
          },
        },
      },
      update: ({ messages, reply, state }) => {
        expectTypeOf(messages).toEqualTypeOf<readonly Message[]>()
        expectTypeOf(reply.content).toEqualTypeOf<string | null>()
        return state.guesses.length > 10 ? { end: true } : undefined
      },
      reward: {
        right: ({ answer, task: row, truncated }) => {
          expectTypeOf(row).toEqualTypeOf<Task>()
          return !truncated && Number(answer) === row.answer
        },
        quick: { weight: 0.1, score: async ({ state }) => 1 / state.guesses.length },
        judged: judge({
          reference: ({ task: row }) => String(row.answer),
          question: ({ state }) => String(state.log.size),
        }),
        scored: { weight: 0, score: commandReward({ command: ['scorer', '--fast'] }) },
        rank: {
          group: ({ members, task: row, options: { size } }) => {
            expectTypeOf(members).toEqualTypeOf<readonly GroupMember[]>()
            expectTypeOf(row).toEqualTypeOf<Task>()
            return members.map(() => size)
          },
        },
      },
      groupPolicy: 'replace',
      limits: { maxTurns: 5 },
      sampling: { temperature: 0.5 },
    })
    expectTypeOf(environment).toEqualTypeOf<Environment>()
    expect(environment.name).toBe('sums')
  })

  test('needs no options, setup or tools', () => {
    const environment = defineEnvironment({
      name: 'least',
      task,
      tasks: (none) => {
        expectTypeOf(none).toEqualTypeOf<Readonly<Record<string, never>>>()
        return jsonl('questions.jsonl')
      },
      prompt: ({ state }) => {
        expectTypeOf(state).toEqualTypeOf<undefined>()
        return [{ role: 'user', content: 'hello' }]
      },
      reward: (context) => {
        expectTypeOf(context).toExtend<RewardContext<Task, undefined, unknown>>()
        return context.answer.length
      },
    })
    expect(environment.tools).toBeUndefined()
  })

  test('accepts endless generators and promises of tasks', () => {
    const least = { name: 'x', task, prompt: () => '', reward: () => 1 }
    defineEnvironment({
      ...least,
      *tasks() {
        for (;;) yield { question: 'again?', answer: 1 }
      },
    })
    defineEnvironment({
      ...least,
      async *tasks() {
        yield 1
      },
    })
    const environment = defineEnvironment({ ...least, tasks: async () => [1, 2] })
    expect(environment.tasks({})).toBeInstanceOf(Promise)
  })

  test('accepts any Standard Schema', () => {
    const handMade = {
      '~standard': {
        version: 1 as const,
        vendor: 'mine',
        validate: (value: unknown) => ({ value: { text: String(value) } }),
        types: undefined as { input: unknown; output: { text: string } } | undefined,
      },
    }
    const environment = defineEnvironment({
      name: 'other',
      task: handMade,
      tasks: () => [],
      prompt: (context) => context.task.text,
      reward: () => true,
    })
    expect(environment.task).toBe(handMade)
  })

  test('refuses invalid fields', () => {
    const least = { name: 'x', task, tasks: () => [], prompt: () => '' }
    const wrong = () => {
      // @ts-expect-error: there is no reward
      defineEnvironment({ ...least })
      // @ts-expect-error: a score is a number or a boolean
      defineEnvironment({ ...least, reward: () => 'good' })
      // @ts-expect-error: a group's scores are a list
      defineEnvironment({ ...least, reward: { rank: { group: () => 1 } } })
      // @ts-expect-error: tasks come from a function
      defineEnvironment({ ...least, tasks: [], reward: () => 1 })
      // @ts-expect-error: a task has no such field
      defineEnvironment({ ...least, prompt: (context) => context.task.nothing, reward: () => 1 })
      // @ts-expect-error: a task's answer is a number
      defineEnvironment({ ...least, prompt: (context) => context.task.answer, reward: () => 1 })
      // @ts-expect-error: there is no such option
      defineEnvironment({ ...least, options, tasks: ({ count }) => [count], reward: () => 1 })
      // @ts-expect-error: there is no such policy
      defineEnvironment({ ...least, reward: () => 1, groupPolicy: 'drop' })
      // @ts-expect-error: a judge sees the same task
      defineEnvironment({ ...least, reward: judge({ reference: (context) => context.task.answer }) })
      // @ts-expect-error: a command is a list that begins with the program
      defineEnvironment({ ...least, reward: commandReward({ command: [] }) })
      defineEnvironment({
        ...least,
        tools: {
          // @ts-expect-error: the parameter is a number
          add: { parameters: z.object({ n: z.number() }), run: ({ n }) => n.toUpperCase() },
          // @ts-expect-error: a tool's output is JSON
          list: { parameters: z.object({}), run: () => new Set<number>() },
        },
        reward: () => 1,
      })
      defineEnvironment({
        ...least,
        setup: () => ({ count: 0 }),
        // @ts-expect-error: the state has no such field
        reward: ({ state }) => state.total,
      })
    }
    expect(wrong).toBeTypeOf('function')
  })
})
