import { inspect } from 'node:util'
import { MillraceError } from '../errors/index.ts'
import { nearestName, unknownField } from '../kit/index.ts'
import { describeIssues, limitsSchema, samplingSchema } from '../schema/index.ts'
import { repairRulesSchema, ToolBox, toolFormatNames, type ResumeRule, type Tool } from '../tools/index.ts'
import type { Environment } from './define-environment.ts'

type Fields = Readonly<Record<string, unknown>>

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

const toolFieldNames: Readonly<Record<keyof Tool, true>> = {
  description: true,
  parameters: true,
  exclusive: true,
  resume: true,
  timeoutMs: true,
  origin: true,
  run: true,
}
const knownToolFields = Object.keys(toolFieldNames)

const resumeRules: Readonly<Record<ResumeRule, true>> = { rerun: true, reuse: true, restart: true }

/**
 * Fields whose wrong values would otherwise pass: an unknown rule would act as `reuse`, an invalid time as no time limit at
 * all.
 */
const toolValues: Readonly<
  Record<string, { readonly isRight: (value: unknown) => boolean; readonly expected: string }>
> = {
  description: { isRight: (value) => typeof value === 'string', expected: 'a text' },
  exclusive: { isRight: (value) => typeof value === 'boolean', expected: 'true or false' },
  resume: {
    isRight: (value) => typeof value === 'string' && Object.hasOwn(resumeRules, value),
    expected: '"rerun", "reuse" or "restart"',
  },
  timeoutMs: { isRight: (value) => typeof value === 'number' && value > 0, expected: 'a number of more than 0' },
}

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
  const require = (isRight: boolean, field: string, expected: string): void => {
    if (!isRight) problems.push(`\`${field}\` must be ${expected}, not ${briefly(fields[field])}`)
  }
  require(typeof fields['name'] === 'string' && fields['name'] !== '', 'name', 'a text')
  require(isSchema(fields['task']), 'task', 'a schema, such as z.object({ … })')
  require(isFunction(fields['tasks']), 'tasks', 'a function that returns the tasks')
  require(isFunction(fields['prompt']), 'prompt', 'a function that returns the first messages')
  problems.push(...rewardProblems(fields['reward']))
  for (const field of ['taskId', 'setup', 'teardown', 'agent', 'update', 'contextPolicy']) {
    require(fields[field] === undefined || isFunction(fields[field]), field, 'a function')
  }
  require(fields['options'] === undefined ||
    isSchema(fields['options']), 'options', 'a schema, such as z.object({ … })')
  const { groupPolicy, isolation } = fields
  require(groupPolicy === undefined ||
    groupPolicy === 'keep' ||
    groupPolicy === 'replace' ||
    groupPolicy === 'void', 'groupPolicy', '"keep", "replace" or "void"')
  require(isolation === undefined ||
    isolation === 'thread' ||
    isolation === 'process', 'isolation', '"thread" or "process"')
  problems.push(...toolProblems(fields['tools']))
  const { mcpServers, toolFormat, toolOutput } = fields
  require(mcpServers === undefined ||
    isFields(mcpServers) ||
    isFunction(mcpServers), 'mcpServers', 'an object of named servers, or a function that returns one')
  const formats: readonly unknown[] = toolFormatNames
  require(toolFormat === undefined ||
    formats.includes(toolFormat), 'toolFormat', `one of ${toolFormatNames.join(', ')}`)
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

/** Finds fields that look like misspelt ones of ours. Other unknown fields are the author's own and are allowed. */
function misspelt(fields: Fields, known: readonly string[], path = ''): string[] {
  return Object.keys(fields).flatMap((field) => {
    const near = known.includes(field) ? undefined : nearestName(field, known)
    return near === undefined ? [] : [`\`${path}${field}\` is not known; did you mean \`${near}\`?`]
  })
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

function toolProblems(tools: unknown): string[] {
  if (tools === undefined) return []
  if (!isFields(tools)) return [`\`tools\` must be an object of named tools, not ${briefly(tools)}`]
  const broken: string[] = []
  for (const [name, tool] of Object.entries(tools)) {
    const parts: Fields = isFields(tool) ? tool : {}
    if (!isSchema(parts['parameters']))
      broken.push(`\`tools.${name}.parameters\` must be a schema, such as z.object({ … })`)
    if (!isFunction(parts['run'])) broken.push(`\`tools.${name}.run\` must be a function`)
    for (const [field, { isRight, expected }] of Object.entries(toolValues)) {
      const value = parts[field]
      if (value !== undefined && !isRight(value)) broken.push(`\`tools.${name}.${field}\` must be ${expected}`)
    }
    broken.push(...misspelt(parts, knownToolFields, `tools.${name}.`))
  }
  if (broken.length > 0) return broken
  try {
    // Prepares every tool as a run would, so that a schema without a JSON Schema is found now.
    void new ToolBox(tools as Readonly<Record<string, Tool<object>>>)
    return []
  } catch (error) {
    return [MillraceError.from(error, 'env_invalid').rawMessage]
  }
}

/** The least `maxChars`: a shortened output needs room for the note that says so. */
const minOutputChars = 1_000

function isToolOutput(value: unknown): boolean {
  if (!isFields(value) || unknownField(value, ['maxChars', 'spill']) !== undefined) return false
  if (!['undefined', 'boolean'].includes(typeof value['spill'])) return false
  return Number.isInteger(value['maxChars']) && Number(value['maxChars']) >= minOutputChars
}

function isFields(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function isFunction(value: unknown): boolean {
  return typeof value === 'function'
}

function isSchema(value: unknown): boolean {
  if ((typeof value !== 'object' && typeof value !== 'function') || value === null || !('~standard' in value))
    return false
  const standard = value['~standard']
  return isFields(standard) && isFunction(standard['validate'])
}

/** What stands in place of something else: itself if that is short, else what kind of thing it is. */
function briefly(value: unknown): string {
  if (value === undefined) return 'missing'
  if (Array.isArray(value)) return 'an array'
  const isLong = isFields(value) || isFunction(value)
  return isLong ? `a value of type ${typeof value}` : inspect(value, { maxStringLength: 60 })
}
