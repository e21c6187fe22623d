/* What is offered. What is allowed, the service decides. */

export const isAdmin = ({ role }) => role === "Owner" || role === "Admin";
export const mayEdit = ({ role }) => role !== "Viewer";
