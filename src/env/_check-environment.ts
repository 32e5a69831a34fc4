import { MillraceError } from '../errors/index.ts'
import { unknownField } from '../kit/index.ts'
import { describeIssues, limitsSchema, samplingSchema } from '../schema/index.ts'
import { repairRulesSchema, toolFormatNames } from '../tools/index.ts'
import type { Environment } from './define-environment.ts'
import {
  briefly,
  functionRule,
  isFields,
  isFunction,
  misspelt,
  schemaRule,
  type FieldRule,
  type Fields,
} from './_field-rules.ts'
import { toolProblems } from './_tool-problems.ts'

const fieldNames: Readonly<Record<keyof Environment, true>> = {
  name: true,
  description: true,
  options: true,
  task: true,
  tasks: true,
  taskId: true,
  prompt: true,
  setup: true,
  teardown: true,
  tools: true,
  mcpServers: true,
  toolFormat: true,
  repair: true,
  toolOutput: true,
  contextPolicy: true,
  agent: true,
  update: true,
  reward: true,
  groupPolicy: true,
  isolation: true,
  limits: true,
  sampling: true,
}
const knownFields = Object.keys(fieldNames)

type EnvironmentRules = Readonly<Partial<Record<keyof Environment, FieldRule>>>

const requiredRules = {
  name: { isRight: (value) => typeof value === 'string' && value !== '', expected: 'a text' },
  task: schemaRule,
  tasks: { isRight: isFunction, expected: 'a function that returns the tasks' },
  prompt: { isRight: isFunction, expected: 'a function that returns the first messages' },
} satisfies EnvironmentRules

/** The rules for fields that may be left out. */
const optionalRules = {
  taskId: functionRule,
  setup: functionRule,
  teardown: functionRule,
  agent: functionRule,
  update: functionRule,
  contextPolicy: functionRule,
  options: schemaRule,
  groupPolicy: choiceRule(['keep', 'replace', 'void'], '"keep", "replace" or "void"'),
  isolation: choiceRule(['thread', 'process'], '"thread" or "process"'),
  mcpServers: {
    isRight: (value) => isFields(value) || isFunction(value),
    expected: 'an object of named servers, or a function that returns one',
  },
  toolFormat: choiceRule(toolFormatNames, `one of ${toolFormatNames.join(', ')}`),
} satisfies EnvironmentRules

/** The fields that are plain data. */
const plainFields = { limits: limitsSchema.partial(), sampling: samplingSchema, repair: repairRulesSchema }

/**
 * Throws `env_invalid` with everything that is wrong with an environment. Modules are loaded at run time, and some are
 * JavaScript, so types alone do not tell. `where` names the environment in the message.
 */
export function checkEnvironment(value: unknown, where: string): asserts value is Environment {
  const problems = isFields(value)
    ? problemsOf(value)
    : [`it is ${briefly(value)}, where what defineEnvironment() returns should be`]
  if (problems.length === 0) return
  throw new MillraceError('env_invalid', `${where} is not an environment: ${problems.join('; ')}`)
}

function problemsOf(fields: Fields): string[] {
  const problems: string[] = []
  for (const [field, { isRight, expected }] of Object.entries(requiredRules)) {
    if (!isRight(fields[field])) problems.push(unfit(fields, field, expected))
  }
  problems.push(...rewardProblems(fields['reward']))
  for (const [field, { isRight, expected }] of Object.entries(optionalRules)) {
    if (fields[field] !== undefined && !isRight(fields[field])) problems.push(unfit(fields, field, expected))
  }
  problems.push(...toolProblems(fields['tools']))
  const { toolOutput } = fields
  if (toolOutput !== undefined && !isToolOutput(toolOutput)) {
    problems.push(
      `\`toolOutput\` must have \`maxChars\`, a whole number of at least ${minOutputChars}, and may have \`spill\``,
    )
  }
  for (const [field, schema] of Object.entries(plainFields)) {
    const checked = schema.optional().safeParse(fields[field])
    if (!checked.success)
      problems.push(`\`${field}\` does not fit: ${describeIssues(checked.error.issues, fields[field])}`)
  }
  problems.push(...misspelt(fields, knownFields))
  return problems
}

function unfit(fields: Fields, field: string, expected: string): string {
  return `\`${field}\` must be ${expected}, not ${briefly(fields[field])}`
}

function choiceRule(choices: readonly unknown[], expected: string): FieldRule {
  return { isRight: (value) => choices.includes(value), expected }
}

function rewardProblems(reward: unknown): string[] {
  if (isFunction(reward)) return []
  if (!isFields(reward) || Object.keys(reward).length === 0) {
    return [`\`reward\` must be a function, or an object of named functions, not ${briefly(reward)}`]
  }
  const problems: string[] = []
  for (const [name, component] of Object.entries(reward)) {
    if (isFunction(component)) continue
    const parts: Fields = isFields(component) ? component : {}
    if (isFunction(parts['score']) === isFunction(parts['group'])) {
      problems.push(`\`reward.${name}\` must be a function, or an object with either \`score\` or \`group\``)
    }
    const unknown = unknownField(parts, ['weight', 'score', 'group'], `reward.${name}.`)
    if (unknown !== undefined) problems.push(unknown)
    const { weight } = parts
    if (weight !== undefined && !Number.isFinite(weight)) problems.push(`\`reward.${name}.weight\` must be a number`)
  }
  return problems
}

/** The least `maxChars`: a shortened output needs room for the note that says so. */
const minOutputChars = 1_000

function isToolOutput(value: unknown): boolean {
  if (!isFields(value) || unknownField(value, ['maxChars', 'spill']) !== undefined) return false
  if (!['undefined', 'boolean'].includes(typeof value['spill'])) return false
  return Number.isInteger(value['maxChars']) && Number(value['maxChars']) >= minOutputChars
}
