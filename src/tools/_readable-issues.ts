import type { ErrorObject } from 'ajv'
import { kindOfValue, nearestName } from '../kit/index.ts'
import type { ValidationIssue } from '../schema/index.ts'
import { describeParameters } from './_describe-parameters.ts'

/** A model corrects a few mistakes at a time; more of them only cost it context. */
const maxIssues = 8

/** Ajv's errors, in words that tell a model what to send instead. */
export function readableIssues(errors: readonly ErrorObject[]): ValidationIssue[] {
  return withoutAlternatives(errors).slice(0, maxIssues).map(toIssue)
}

function toIssue(error: ErrorObject): ValidationIssue {
  const path = pathOf(error.instancePath)
  const { keyword, data } = error
  const params: Readonly<Record<string, unknown>> = error.params
  switch (keyword) {
    case 'required':
      return { path: [...path, String(params['missingProperty'])], message: 'is missing' }
    case 'additionalProperties':
    case 'unevaluatedProperties':
      return {
        path,
        message: unknownName(String(params['additionalProperty'] ?? params['unevaluatedProperty']), error),
      }
    case 'type':
      return { path, message: `expected ${[params['type']].flat().join(' or ')}, got ${kindOfValue(data)}` }
    case 'enum':
    case 'const':
    case 'anyOf':
    case 'oneOf':
      return { path, message: `expected ${describeParameters(error.parentSchema ?? {})}` }
    default:
      return { path, message: error.message ?? `does not satisfy "${keyword}"` }
  }
}

/**
 * Where none of several alternatives fits, ajv says what is wrong with each of them, and then that none fits. Errors further
 * inside say more than that summary, so it is dropped; errors at the same place say less, so they are dropped.
 */
function withoutAlternatives(errors: readonly ErrorObject[]): readonly ErrorObject[] {
  const dropped = new Set<ErrorObject>()
  errors.forEach((summary, index) => {
    if (summary.keyword !== 'anyOf' && summary.keyword !== 'oneOf') return
    const branches = errors.slice(0, index).filter((error) => isBranchOf(summary, error))
    const hasInner = branches.some((error) => error.instancePath !== summary.instancePath)
    if (hasInner) dropped.add(summary)
    for (const error of branches) if (error.instancePath === summary.instancePath) dropped.add(error)
  })
  return errors.filter((error) => !dropped.has(error))
}

function isBranchOf(summary: ErrorObject, error: ErrorObject): boolean {
  if (!error.instancePath.startsWith(summary.instancePath)) return false
  // A branch that is a reference has the schema path of its target.
  return error.schemaPath.startsWith(`${summary.schemaPath}/`) || /^#\/(\$defs|definitions)\//.test(error.schemaPath)
}

function unknownName(name: string, { parentSchema }: ErrorObject): string {
  const properties: unknown = parentSchema?.['properties']
  const known = typeof properties === 'object' && properties !== null ? Object.keys(properties) : []
  const near = nearestName(name, known)
  return `unknown "${name}"${near === undefined ? '' : `; did you mean "${near}"?`}`
}

/** `/items/0/a~1b` as its steps. */
function pathOf(pointer: string): string[] {
  return pointer
    .split('/')
    .slice(1)
    .map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'))
}
