export { type AdvantageRule, advantageRules } from './advantage.ts'
export { type CompleteTokens, completeTokens } from './captured-tokens.ts'
export {
  exportQuerySchema,
  exportRows,
  type ExportRowsOptions,
  type GroupOptions,
  groupRows,
  rowChunks,
  rowsOf,
} from './export-rows.ts'
export { binaryFrame, binaryHead, type EndRow, noRows, type Row, type RowCounts } from './row.ts'
