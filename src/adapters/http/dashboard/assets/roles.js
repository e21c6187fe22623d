/* Which controls are shown. The service decides what is allowed. */

export const isAdmin = ({ role }) => role === "Owner" || role === "Admin";
export const mayEdit = ({ role }) => role !== "Viewer";
