import { plainIssue } from './plain-issue.ts'

/**
 * The part of Standard Schema (standardschema.dev) that Millrace needs: any library that implements it (zod, valibot,
 * arktype) can describe tasks, options and tool parameters.
 */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly '~standard': {
    readonly version: 1
    readonly vendor: string
    readonly validate: (value: unknown) => ValidationResult<Output> | Promise<ValidationResult<Output>>
    readonly types?: { readonly input: Input; readonly output: Output } | undefined
  }
}

export type ValidationResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly ValidationIssue[] }

export interface ValidationIssue {
  readonly message: string
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined
}

export type OutputOf<Schema extends StandardSchema> = NonNullable<Schema['~standard']['types']>['output']

/** How many issues are shown: nobody corrects more at a time. */
const maxIssues = 8

/** `answer.value: expected number, got string` for each issue, joined. */
export function describeIssues(issues: readonly ValidationIssue[]): string {
  const shown = issues.slice(0, maxIssues).map((issue) => {
    const path = (issue.path ?? []).map((step) => String(typeof step === 'object' ? step.key : step)).join('.')
    const message = plainIssue(issue.message)
    return path ? `${path}: ${message}` : message
  })
  const more = issues.length - shown.length
  return shown.join('; ') + (more > 0 ? `; and ${more} more` : '')
}
